// Package nils finds nil pointers in interfaces, which compare as unequal to nil.
package nils

import "reflect"

// Is reports whether v is nil, or a nil pointer or function in an interface.
func Is(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	}
	return false
}
