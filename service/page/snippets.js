// The request that was just sent, for a terminal and for Python, each with a button that copies it.

import { element } from "./dom.js";

const SHOWN_TEXTS = 20; // of a longer list; the rest would only be scrolled past

const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A curl command. The key is a variable of the shell, so that copying does not spread it. */
export function curl(url, inputs, withKey) {
  const lines = [`curl ${shellQuoted(url)}`, "-H 'content-type: application/json'"];
  if (withKey) lines.push('-H "authorization: Bearer $ROBAL_KEY"');
  lines.push(`-d ${shellQuoted(JSON.stringify({ inputs }))}`);
  return lines.join(" \\\n  ");
}

/** A Python program; JSON's strings, lists and objects are Python's too. */
export function python(url, inputs, withKey) {
  const header = withKey ? `\n    headers={"authorization": "Bearer " + os.environ["ROBAL_KEY"]},` : "";
  return `${withKey ? "import os\n\n" : ""}import requests

answer = requests.post(
    ${JSON.stringify(url)},${header}
    json={"inputs": ${JSON.stringify(inputs, null, 4).replaceAll("\n", "\n    ")}},
    timeout=30,
)
answer.raise_for_status()
for result in answer.json()["results"]:
    print(result)`;
}

/** Both, ready to be shown. `say` tells people what happened. */
export function snippets(url, inputs, withKey, say) {
  const shown = Array.isArray(inputs) ? inputs.slice(0, SHOWN_TEXTS) : inputs;
  const short = Array.isArray(inputs) && shown.length < inputs.length;
  return [
    short && element("p", { class: "hint" }, `With the first ${SHOWN_TEXTS} of the ${inputs.length} texts.`),
    block("curl", curl(url, shown, withKey), say),
    block("Python", python(url, shown, withKey), say),
  ].filter(Boolean);
}

function block(name, text, say) {
  const code = element("code", {}, text);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(`${name} copied.`);
    } catch {
      // browsers allow it on https and localhost only
      getSelection().selectAllChildren(code);
      say(`${name} is selected; copy it with Ctrl+C.`);
    }
  };
  return element(
    "figure",
    {},
    element(
      "figcaption",
      {},
      name,
      element("button", { type: "button", class: "small", "aria-label": `Copy ${name}`, onclick: copy }, "Copy"),
    ),
    element("pre", { tabindex: "0", "aria-label": `${name} call` }, code),
  );
}
