// OpenAI's Node client waits as a busy server asks: node retries.mjs SERVER_URL
import OpenAI from 'openai';
import { show } from './examples.mjs';

let requests = 0;
const client = new OpenAI({
  baseURL: `${process.argv[2]}/v1`,
  apiKey: 'unused',
  maxRetries: 60,
  fetch: (...request) => {
    requests += 1;
    return fetch(...request);
  },
});

await show({
  patient: async () => {
    const answer = await client.chat.completions.create({
      model: 'smollm2',
      messages: [{ role: 'user', content: 'What is the capital of Japan?' }],
      temperature: 0,
    });
    return { text: answer.choices[0].message.content, retries: requests - 1 };
  },
});
