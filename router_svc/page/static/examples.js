// What the playground offers to begin with.

export const TOOLS = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city now.",
      parameters: {
        type: "object",
        properties: {
          city: { type: "string", maxLength: 24 },
          unit: { enum: ["celsius", "fahrenheit"] },
        },
        required: ["city", "unit"],
        additionalProperties: false,
      },
      strict: true,
    },
  },
];

export const SCHEMA = {
  type: "object",
  properties: {
    country: { type: "string", maxLength: 32 },
    capital: { type: "string", maxLength: 32 },
    population: { type: "integer" },
  },
  required: ["country", "capital", "population"],
  additionalProperties: false,
};

export const EXAMPLES = [
  { title: "Ask a question", text: "What is the capital of Japan?" },
  { title: "See each token's chances", text: "Name three colours of autumn.", logprobs: true },
  { title: "Have a tool called", text: "What is the weather like in Paris?", tools: true },
  { title: "Get JSON of a schema", text: "Tell me about Portugal.", schema: true },
];
