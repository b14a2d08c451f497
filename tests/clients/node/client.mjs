// A gRPC client in Node, from nothing but the .proto files: node client.mjs TARGET PROTO_DIR
// Prints one JSON object with what the server answered.
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const [target, protoDir] = process.argv.slice(2);
const definition = protoLoader.loadSync('octavo/inference/v1/inference.proto', {
  includeDirs: [protoDir],
  keepCase: true,
  enums: String,
  longs: Number,
  defaults: true,
  oneofs: true,
});
const { Inference } = grpc.loadPackageDefinition(definition).octavo.inference.v1;
const client = new Inference(target, grpc.credentials.createInsecure());

const call = (method, request) =>
  new Promise((resolve, reject) =>
    client[method](request, (error, answer) => (error ? reject(error) : resolve(answer))),
  );

const messages = [{ role: 'ROLE_USER', content: { text: 'What is the capital of Japan?' } }];

const models = await call('ListModels', {});
const whole = await call('CreateChatCompletion', { messages, temperature: 0 });

let streamed = '';
let finish = null;
for await (const chunk of client.StreamChatCompletion({ messages, temperature: 0 })) {
  for (const choice of chunk.choices) {
    streamed += choice.delta.content ?? '';
    if (choice.finish_reason !== 'FINISH_REASON_UNSPECIFIED') finish = choice.finish_reason;
  }
}

const refused = await call('CreateChatCompletion', { messages, temperature: 9 }).catch((e) => e);

console.log(
  JSON.stringify({
    models: models.data.map((model) => model.id),
    text: whole.choices[0].message.content,
    usage: whole.usage,
    streamed,
    finish,
    refusedCode: grpc.status[refused.code],
    refusedMessage: refused.details,
  }),
);
client.close();
