// Reads server-sent events (WHATWG HTML, 9.2.6) from a fetched body; EventSource can only GET.

/** Yields the data of each event. Throws what the stream does. */
export async function* dataOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let lines = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = parts.pop();
      for (const line of parts) {
        if (line === "") {
          if (lines.length) yield lines.join("\n");
          lines = [];
        } else if (line.startsWith("data:")) {
          lines.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
