// A gRPC client in C++: client TARGET QUESTION
// Prints what the server answered, as "name: value" lines.
#include <grpcpp/grpcpp.h>

#include <iostream>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "octavo/inference/v1/inference.grpc.pb.h"

namespace pb = octavo::inference::v1;

namespace {

pb::CreateChatCompletionRequest ask(const std::string& question) {
  pb::CreateChatCompletionRequest request;
  pb::ChatMessage* message = request.add_messages();
  message->set_role(pb::ROLE_USER);
  message->mutable_content()->set_text(question);
  request.set_temperature(0);
  return request;
}

// The path of the request's field at fault, from the status' google.rpc.BadRequest.
std::string field_at_fault(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::BadRequest bad_request;
  details.ParseFromString(status.error_details());
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&bad_request)) return bad_request.field_violations(0).field();
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: client TARGET QUESTION\n";
    return 2;
  }
  auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  auto stub = pb::Inference::NewStub(channel);
  pb::CreateChatCompletionRequest request = ask(argv[2]);

  {  // the whole answer
    grpc::ClientContext context;
    pb::CreateChatCompletionResponse answer;
    grpc::Status status = stub->CreateChatCompletion(&context, request, &answer);
    if (!status.ok()) {
      std::cerr << status.error_message() << "\n";
      return 1;
    }
    const pb::ChatChoice& choice = answer.choices(0);
    std::cout << "text: " << choice.message().content() << "\n"
              << "finish_reason: " << pb::FinishReason_Name(choice.finish_reason()) << "\n"
              << "completion_tokens: " << answer.usage().completion_tokens() << "\n";
  }
  {  // the same, token by token
    grpc::ClientContext context;
    pb::StreamChatCompletionResponse chunk;
    auto stream = stub->StreamChatCompletion(&context, request);
    std::cout << "streamed: ";
    while (stream->Read(&chunk)) {
      for (const auto& choice : chunk.choices()) std::cout << choice.delta().content();
    }
    std::cout << "\nstreamed_code: " << stream->Finish().error_code() << "\n";
  }
  {  // a request that is refused
    grpc::ClientContext context;
    pb::CreateChatCompletionRequest wrong = request;
    pb::CreateChatCompletionResponse answer;
    wrong.set_temperature(9);
    grpc::Status status = stub->CreateChatCompletion(&context, wrong, &answer);
    std::cout << "refused_code: " << status.error_code() << "\n"
              << "refused_field: " << field_at_fault(status) << "\n";
  }
  {  // a long answer, cancelled after its first message
    grpc::ClientContext context;
    pb::StreamChatCompletionResponse chunk;
    pb::CreateChatCompletionRequest endless = request;
    endless.set_ignore_eos(true);
    auto stream = stub->StreamChatCompletion(&context, endless);
    stream->Read(&chunk);
    context.TryCancel();
    while (stream->Read(&chunk)) {
    }
    std::cout << "cancelled_code: " << stream->Finish().error_code() << "\n";
  }
  return 0;
}
