// Runs examples in turn and prints one JSON object: each one's result, or how it failed.
export async function show(examples) {
  const results = {};
  for (const [name, example] of Object.entries(examples)) {
    try {
      results[name] = { result: await example() };
    } catch (error) {
      results[name] = { failed: error.stack };
    }
  }
  console.log(JSON.stringify(results));
}
