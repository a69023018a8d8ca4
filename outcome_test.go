package cruise_test

type grumpyError struct{}

func (grumpyError) Error() string { return "grumpy" }
func (grumpyError) Is(error) bool { panic("Is") }
func (grumpyError) As(any) bool   { panic("As") }
func (grumpyError) Unwrap() error { panic("Unwrap") }
