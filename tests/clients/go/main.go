// A gRPC client in Go: client TARGET QUESTION
// Prints what the server answered, as "name: value" lines.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "octavo/inference/v1"
)

func ask(question string) *pb.CreateChatCompletionRequest {
	content := &pb.MessageContent{Kind: &pb.MessageContent_Text{Text: question}}
	return &pb.CreateChatCompletionRequest{
		Messages:    []*pb.ChatMessage{{Role: pb.Role_ROLE_USER, Content: content}},
		Temperature: proto.Float64(0),
	}
}

func whole(client pb.InferenceClient, question string) error {
	answer, err := client.CreateChatCompletion(context.Background(), ask(question))
	if err != nil {
		return err
	}
	choice := answer.Choices[0]
	fmt.Println("text:", choice.Message.GetContent())
	fmt.Println("finish_reason:", choice.FinishReason)
	fmt.Println("completion_tokens:", answer.Usage.CompletionTokens)
	return nil
}

func streamed(client pb.InferenceClient, question string) error {
	stream, err := client.StreamChatCompletion(context.Background(), ask(question))
	if err != nil {
		return err
	}
	fmt.Print("streamed: ")
	for {
		chunk, err := stream.Recv()
		if err == io.EOF {
			fmt.Printf("\nstreamed_code: %d\n", codes.OK)
			return nil
		}
		if err != nil {
			return err
		}
		for _, choice := range chunk.Choices {
			fmt.Print(choice.Delta.GetContent())
		}
	}
}

// refused shows the path of the field at fault, from the status' google.rpc.BadRequest.
func refused(client pb.InferenceClient, question string) {
	request := ask(question)
	request.Temperature = proto.Float64(9)
	_, err := client.CreateChatCompletion(context.Background(), request)
	answer := status.Convert(err)
	fmt.Printf("refused_code: %d\n", answer.Code())
	for _, detail := range answer.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			fmt.Println("refused_field:", bad.FieldViolations[0].Field)
		}
	}
}

// cancelled gives up a long answer after its first message.
func cancelled(client pb.InferenceClient, question string) error {
	request := ask(question)
	request.IgnoreEos = proto.Bool(true)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.StreamChatCompletion(ctx, request)
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	if err != nil {
		return err
	}
	cancel()
	for err == nil {
		_, err = stream.Recv()
	}
	fmt.Printf("cancelled_code: %d\n", status.Code(err))
	return nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: client TARGET QUESTION")
	}
	target, question := os.Args[1], os.Args[2]
	connection, err := grpc.Dial(target, grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := pb.NewInferenceClient(connection)

	if err := whole(client, question); err != nil {
		log.Fatal(err)
	}
	if err := streamed(client, question); err != nil {
		log.Fatal(err)
	}
	refused(client, question)
	if err := cancelled(client, question); err != nil {
		log.Fatal(err)
	}
}
