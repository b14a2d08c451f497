import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.Iterator;
import octavo.inference.v1.InferenceGrpc;
import octavo.inference.v1.InferenceGrpc.InferenceBlockingStub;
import octavo.inference.v1.InferenceOuterClass.ChatChoice;
import octavo.inference.v1.InferenceOuterClass.ChatChunkChoice;
import octavo.inference.v1.InferenceOuterClass.ChatMessage;
import octavo.inference.v1.InferenceOuterClass.CreateChatCompletionRequest;
import octavo.inference.v1.InferenceOuterClass.CreateChatCompletionResponse;
import octavo.inference.v1.InferenceOuterClass.MessageContent;
import octavo.inference.v1.InferenceOuterClass.Role;
import octavo.inference.v1.InferenceOuterClass.StreamChatCompletionResponse;

/** A gRPC client in Java: Client TARGET QUESTION. Prints what the server answered, as "name: value" lines. */
public final class Client {
  private final InferenceBlockingStub stub;
  private final CreateChatCompletionRequest request;

  private Client(ManagedChannel channel, String question) {
    stub = InferenceGrpc.newBlockingStub(channel);
    MessageContent content = MessageContent.newBuilder().setText(question).build();
    request =
        CreateChatCompletionRequest.newBuilder()
            .addMessages(ChatMessage.newBuilder().setRole(Role.ROLE_USER).setContent(content))
            .setTemperature(0)
            .build();
  }

  private void whole() {
    CreateChatCompletionResponse answer = stub.createChatCompletion(request);
    ChatChoice choice = answer.getChoices(0);
    show("text", choice.getMessage().getContent());
    show("finish_reason", choice.getFinishReason());
    show("completion_tokens", answer.getUsage().getCompletionTokens());
  }

  private void streamed() {
    StringBuilder text = new StringBuilder();
    Iterator<StreamChatCompletionResponse> chunks = stub.streamChatCompletion(request);
    while (chunks.hasNext()) { // ends normally, or throws
      for (ChatChunkChoice choice : chunks.next().getChoicesList()) {
        text.append(choice.getDelta().getContent());
      }
    }
    show("streamed", text);
    show("streamed_code", 0);
  }

  private void refused() throws InvalidProtocolBufferException {
    try {
      stub.createChatCompletion(request.toBuilder().setTemperature(9).build());
    } catch (StatusRuntimeException error) {
      show("refused_code", error.getStatus().getCode().value());
      for (com.google.protobuf.Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
        if (detail.is(BadRequest.class)) {
          show("refused_field", detail.unpack(BadRequest.class).getFieldViolations(0).getField());
        }
      }
    }
  }

  /** Gives up a long answer after its first message. */
  private void cancelled() throws Exception {
    CreateChatCompletionRequest endless = request.toBuilder().setIgnoreEos(true).build();
    Context.CancellableContext context = Context.current().withCancellation();
    try {
      context.call(
          () -> {
            Iterator<StreamChatCompletionResponse> chunks = stub.streamChatCompletion(endless);
            chunks.next();
            context.cancel(null);
            while (chunks.hasNext()) {
              chunks.next();
            }
            return null;
          });
    } catch (StatusRuntimeException error) {
      show("cancelled_code", error.getStatus().getCode().value());
    }
  }

  private static void show(String name, Object value) {
    System.out.println(name + ": " + value);
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("usage: Client TARGET QUESTION");
      System.exit(2);
    }
    ManagedChannel channel = ManagedChannelBuilder.forTarget(args[0]).usePlaintext().build();
    try {
      Client client = new Client(channel, args[1]);
      client.whole();
      client.streamed();
      client.refused();
      client.cancelled();
    } finally {
      channel.shutdownNow();
    }
  }
}
