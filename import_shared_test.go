package cruise_test

import (
	"reflect"

	"github.com/a7df5faa/cruise"
	"github.com/a7df5faa/cruise/shared"
)

func init() {
	cruise.NewShared = func(pauseOnly bool, opts ...cruise.LimiterOption) cruise.Steered {
		var all []shared.Option
		if pauseOnly {
			all = append(all, shared.WithPauseOnly())
		}
		for _, o := range opts {
			all = append(all, o)
		}
		return cruise.Must(shared.New(shared.NewMemoryStore(), all...))
	}
	cruise.SharedTypes = []reflect.Type{reflect.TypeFor[shared.Limiter](), reflect.TypeFor[shared.MemoryStore]()}
}
