package cruisegoogle

import (
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/a7df5faa/cruise/cruisegrpc"
)

// NewInterceptor is [cruisegrpc.New] for Google's services. Methods that only read are idempotent:
// the methods that google.api.http maps to GET in the proto files that the program links. So is
// Pub/Sub's Publish, as messages are delivered at least once in any case. Name more methods by
// [cruisegrpc.WithIdempotent]. A throttled call is retried in any case.
func NewInterceptor(opts ...cruisegrpc.Option) (*cruisegrpc.Interceptor, error) {
	// Last, so that errors count the options as the caller does.
	return cruisegrpc.New(append(opts[:len(opts):len(opts)], cruisegrpc.WithIdempotent(append(reads(), publish)...))...)
}

const publish = "/google.pubsub.v1.Publisher/Publish"

// ClientOptions returns the options by which a gRPC client of Google makes its calls through i: see
// [cruisegrpc.Interceptor.DialOptions]. The client's own retries remain; switch them off by
// [DisableRetries]. If a client exposes no CallOptions, as cloud.google.com/go/firestore's, leave
// retries to it: give [NewInterceptor] cruisegrpc.WithRetrierOptions(cruise.WithMaxAttempts(1)).
func ClientOptions(i *cruisegrpc.Interceptor) []option.ClientOption {
	var opts []option.ClientOption
	for _, o := range i.DialOptions() {
		opts = append(opts, option.WithGRPCDialOption(o))
	}
	return opts
}

// reads returns the methods that only read, as gRPC names them.
func reads() (names []string) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for k := range s.Methods().Len() {
				if m := s.Methods().Get(k); isRead(m) {
					names = append(names, "/"+string(s.FullName())+"/"+string(m.Name()))
				}
			}
		}
		return true
	})
	return names
}

func isRead(m protoreflect.MethodDescriptor) bool {
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	if !ok {
		return false
	}
	rule, ok := proto.GetExtension(o, annotations.E_Http).(*annotations.HttpRule)
	return ok && rule.GetGet() != ""
}
