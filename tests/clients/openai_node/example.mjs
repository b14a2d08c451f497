// OpenAI's Node client: node example.mjs SERVER_URL EMBEDDING_SERVER_URL
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { show } from './examples.mjs';

const [url, embeddingUrl] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'unused' });
const model = 'smollm2';
const messages = [{ role: 'user', content: 'What is the capital of Japan?' }];
const wantsBus = [{ role: 'user', content: 'When does the next bus leave the harbour?' }];
const nextBus = {
  type: 'function',
  function: {
    name: 'next_bus',
    description: 'When the next bus leaves a stop.',
    strict: true,
    parameters: {
      type: 'object',
      properties: { stop: { enum: ['harbour', 'station'] } },
      required: ['stop'],
      additionalProperties: false,
    },
  },
};
const City = z.object({
  name: z.enum(['Tokyo', 'Paris', 'Rome']),
  country: z.enum(['Japan', 'France', 'Italy']),
  districts: z.int().min(1).max(99),
});

await show({
  chat: async () => {
    const answer = await client.chat.completions.create({ model, messages, temperature: 0 });
    return answer.choices[0].message.content;
  },

  chatStream: async () => {
    const chunks = await client.chat.completions.create({
      model,
      messages,
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let usage = null;
    for await (const chunk of chunks) {
      text += chunk.choices.map((choice) => choice.delta.content ?? '').join('');
      usage = chunk.usage ?? usage;
    }
    return { text, completion_tokens: usage.completion_tokens };
  },

  parse: async () => {
    const answer = await client.chat.completions.parse({
      model,
      messages,
      temperature: 0,
      response_format: zodResponseFormat(City, 'city'),
    });
    return answer.choices[0].message.parsed;
  },

  tools: async () => {
    const answer = await client.chat.completions.create({
      model,
      messages: wantsBus,
      temperature: 0,
      tools: [nextBus],
      tool_choice: 'required',
      parallel_tool_calls: false,
    });
    const [{ finish_reason, message }] = answer.choices;
    const [call] = message.tool_calls;
    return { finish_reason, name: call.function.name, arguments: call.function.arguments };
  },

  toolsStream: async () => {
    const stream = client.chat.completions.stream({
      model,
      messages: wantsBus,
      temperature: 0,
      tools: [nextBus],
      tool_choice: 'required',
      parallel_tool_calls: false,
    });
    let joined = '';
    stream.on('tool_calls.function.arguments.delta', (event) => {
      joined += event.arguments_delta;
    });
    const [{ finish_reason, message }] = (await stream.finalChatCompletion()).choices;
    const [call] = message.tool_calls;
    return { finish_reason, name: call.function.name, arguments: call.function.arguments, joined };
  },

  responses: async () => {
    const answer = await client.responses.create({
      model,
      input: messages[0].content,
      temperature: 0,
      store: false,
    });
    return { text: answer.output_text, status: answer.status };
  },

  responsesStream: async () => {
    const stream = client.responses.stream({
      model,
      input: messages[0].content,
      temperature: 0,
      store: false,
    });
    let text = '';
    stream.on('response.output_text.delta', (event) => {
      text += event.delta;
    });
    const final = await stream.finalResponse();
    return { text, final: final.output_text, status: final.status };
  },

  refused: async () => {
    const error = await client.chat.completions
      .create({ model, messages, temperature: 9 })
      .catch((e) => e);
    return {
      kind: error.constructor.name,
      param: error.param,
      type: error.type,
      status: error.status,
    };
  },

  embeddings: async () => {
    const embedder = new OpenAI({ baseURL: `${embeddingUrl}/v1`, apiKey: 'unused' });
    const input = ['A cat sits on the mat.', 'A kitten rests on a rug.', 'Interest rates rose.'];
    const answer = await embedder.embeddings.create({ model: 'minilm', input });
    return answer.data.map((item) => item.embedding);
  },
});
