// One robal service: its routes, its errors, and the key it may ask for.

/** What the service refused, or that it could not be reached. */
export class ServiceError extends Error {
  constructor({ type, message, field = null, requestId = null, retryAfterS = null }) {
    super(message);
    Object.assign(this, { type, field, requestId, retryAfterS });
  }
}

export class Service {
  /**
   * @param name what to call it beside others; empty for the only one.
   * @param base address that its routes are relative to.
   */
  constructor(name, base) {
    this.name = name;
    this.base = base;
    this.key = ""; // in memory only: neither a cookie nor storage ever holds it
    this.facts = null;
  }

  /** The absolute address of a route. */
  url(route) {
    return new URL(route, this.base).href;
  }

  /** The model and the limits; asked for until they are known. */
  async info(signal) {
    if (this.facts === null) this.facts = (await this.#request("info", { signal })).body;
    return this.facts;
  }

  classify(inputs, signal) {
    return this.#post("classify", { inputs }, signal);
  }

  explain(inputs, label) {
    return this.#post("explain", { inputs, label, priority: "normal" });
  }

  #post(route, value, signal) {
    return this.#request(route, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(value),
      signal,
    });
  }

  /** The answer's body, the stages of its time, and how long this page waited. */
  async #request(route, options) {
    const headers = { ...options.headers, ...(this.key && { authorization: `Bearer ${this.key}` }) };
    const started = performance.now();
    let response, text;
    try {
      response = await fetch(this.url(route), { ...options, headers, credentials: "omit", cache: "no-store" });
      text = await response.text();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServiceError({
        type: "unreachable",
        message: "the service does not answer; is it still running, and is the network there?",
      });
    }
    const waitedMs = performance.now() - started;
    const body = parsed(text);
    if (!response.ok) throw refusal(response, body);
    const stages = Object.fromEntries(
      ["tokenize", "queue", "engine", "total"].map((name) => [name, Number(response.headers.get(`x-${name}-ms`))]),
    );
    return { body, stages, waitedMs };
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // a proxy's page
  }
}

function refusal(response, body) {
  const foreign = { type: `http_${response.status}`, message: "the answer was not one of this service's." };
  const error = body?.error ?? foreign;
  return new ServiceError({
    type: error.type,
    message: error.message,
    field: error.field,
    requestId: error.request_id,
    retryAfterS: response.headers.get("retry-after"),
  });
}
