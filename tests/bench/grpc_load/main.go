// Streams answers over gRPC and only counts messages: load TARGET METHOD STREAMS < REQUEST
// Prints the number of messages so far, twenty times a second, until it is killed.
//
// A client that is as slow as the router would measure itself.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Messages as they are, of which only the number matters.
type bytesCodec struct{}

func (bytesCodec) Marshal(v interface{}) ([]byte, error)    { return v.([]byte), nil }
func (bytesCodec) Unmarshal(_ []byte, _ interface{}) error { return nil }
func (bytesCodec) Name() string                             { return "proto" }

func stream(connection *grpc.ClientConn, method string, request []byte, count *int64) error {
	description := &grpc.StreamDesc{ServerStreams: true}
	call, err := connection.NewStream(context.Background(), description, method)
	if err != nil {
		return err
	}
	if err := call.SendMsg(request); err != nil {
		return err
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	for {
		if err := call.RecvMsg(nil); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		atomic.AddInt64(count, 1)
	}
}

func main() {
	target, method := os.Args[1], os.Args[2]
	streams, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	options := grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{}))
	connection, err := grpc.Dial(target, grpc.WithInsecure(), options)
	if err != nil {
		log.Fatal(err)
	}
	var count int64
	for i := 0; i < streams; i++ {
		go func() {
			for {
				if err := stream(connection, method, request, &count); err != nil {
					log.Fatal(err)
				}
			}
		}()
	}
	for {
		time.Sleep(50 * time.Millisecond)
		fmt.Println(atomic.LoadInt64(&count))
	}
}
