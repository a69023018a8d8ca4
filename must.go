package cruise

// Must returns v, or panics with err if that is not nil. It suits variables with constant options.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
