package cruise

// Must returns v, or panics with err if that is not nil. It is for variables
// whose options are constants, as in
//
//	var backoff = cruise.Must(cruise.NewBackoff(cruise.WithBase(time.Second)))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
