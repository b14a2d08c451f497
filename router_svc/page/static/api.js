// Calls of the API with the key of the field, and its one form of errors.

const KEY = "octavo.key";
const BASE = new URL(".", document.baseURI); // also right behind a proxy that adds a path

/** A failed call: the documented error body, its status and request id. Status 0: nobody answered. */
export class ApiError extends Error {
  constructor(status, error, headers) {
    super(error.message);
    this.status = status;
    this.type = error.type ?? "";
    this.code = error.code ?? "";
    this.param = error.param ?? "";
    this.requestId = headers?.get("x-request-id") ?? "";
    this.retryAfter = headers?.get("retry-after") ?? "";
  }
}

/** Fetches below the page's own address. Tells `onKeyNeeded(error)` of each 401. */
export class Api {
  constructor() {
    this.onKeyNeeded = () => {};
    this.onKeyTaken = () => {};
    this._key = "";
    try {
      this._key = sessionStorage.getItem(KEY) ?? "";
    } catch {
      // Storage may be forbidden: the key then lasts as long as the page.
    }
  }

  get key() {
    return this._key;
  }

  /** Kept for this browser tab, nowhere else. */
  set key(value) {
    this._key = value;
    try {
      if (value) sessionStorage.setItem(KEY, value);
      else sessionStorage.removeItem(KEY);
    } catch {
      // As above.
    }
  }

  /** The address of a path, for others to call. */
  url(path) {
    return new URL(path, BASE).href;
  }

  /** The answer to a GET. Throws ApiError. */
  get(path, signal) {
    return this._send(path, { signal });
  }

  /** The answer to a POST of JSON. Throws ApiError, or the signal's AbortError. */
  post(path, body, signal) {
    const headers = { "content-type": "application/json" };
    return this._send(path, { method: "POST", body: JSON.stringify(body), headers, signal });
  }

  async _send(path, options) {
    const headers = { ...options.headers };
    if (this._key) headers.authorization = `Bearer ${this._key}`;
    let response;
    try {
      response = await fetch(this.url(path), { ...options, headers, credentials: "same-origin", cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
      throw new ApiError(0, { message: "The server cannot be reached." });
    }
    if (response.ok) {
      if (path.startsWith("v1/")) this.onKeyTaken(); // /metrics may be open to all
      return response;
    }
    const failure = await readFailure(response);
    if (failure.status === 401) this.onKeyNeeded(failure);
    throw failure;
  }
}

async function readFailure(response) {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    if (typeof error.message === "string") return new ApiError(response.status, error, response.headers);
  } catch {
    // Not of this server, but of a proxy before it.
  }
  const message = text.slice(0, 300) || response.statusText || "The answer has no text.";
  return new ApiError(response.status, { message }, response.headers);
}
