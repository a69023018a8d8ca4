package cruisegrpc

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// methods knows which methods may be called twice without harm.
type methods struct {
	named    map[string]bool // "/pkg.Service/Method", "/pkg.Service/*", "*"
	declared sync.Map        // of bool by method, from proto files
}

func checkMethod(pattern string) error {
	if pattern == "*" {
		return nil
	}
	service, method, ok := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	if !strings.HasPrefix(pattern, "/") || !ok || service == "" || method == "" || strings.Contains(method, "/") || strings.Contains(service, "*") {
		return fmt.Errorf(`cruisegrpc: method %q: want "/package.Service/Method", "/package.Service/*" or "*"`, pattern)
	}
	return nil
}

// idempotent reports whether a method, by its full name in gRPC, may be called twice.
func (m *methods) idempotent(full string) bool {
	if m.named[full] || m.named["*"] || m.named[full[:strings.LastIndexByte(full, '/')+1]+"*"] {
		return true
	}
	if known, ok := m.declared.Load(full); ok {
		return known.(bool)
	}
	safe, known := declaredIdempotent(full)
	if known { // else names from outside could fill the memory
		m.declared.Store(full, safe)
	}
	return safe
}

// declaredIdempotent looks for the method's idempotency_level among the proto
// files that are linked in.
func declaredIdempotent(full string) (safe, known bool) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return false, false
	}
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return false, false
	}
	options, ok := method.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, true
}
