package cruise

import (
	"reflect"
	"time"

	"golang.org/x/time/rate"
)

// Package shared imports this one, so internal tests of this one cannot import it. The tests of
// package cruise_test can, and set the variables below.
var (
	NewShared   func(pauseOnly bool, opts ...LimiterOption) Steered
	SharedTypes []reflect.Type
)

// Steered is a limiter that pauses and resumes.
type Steered interface {
	Learner
	Pause(time.Duration)
	Resume()
	PauseLeft() time.Duration
	Limit() rate.Limit
}
