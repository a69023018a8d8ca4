package clienttest

import (
	"context"
	"fmt"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/a7df5faa/cruise/cruisegoogle"
)

func Example() {
	// A Pub/Sub that throttles the first call.
	first := &refuse{first: 1, err: status.Error(codes.ResourceExhausted, "slow down")}
	server := pstest.NewServer(pstest.ServerReactorOption{FuncName: "CreateTopic", Reactor: first})
	defer server.Close()
	ctx := context.Background()

	throttle, err := cruisegoogle.NewInterceptor()
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := pubsub.NewClient(ctx, "project", append(cruisegoogle.ClientOptions(throttle),
		option.WithEndpoint(server.Addr), option.WithoutAuthentication(), // not yours
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := cruisegoogle.DisableRetries(client.TopicAdminClient.CallOptions); err != nil {
		fmt.Println(err)
		return
	}

	topic, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/project/topics/news"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(topic.GetName(), "after", first.seen.Load(), "calls")
	// Output: projects/project/topics/news after 2 calls
}
