// What is typed or in a file, as the inputs of a request.

import { megabytes } from "./dom.js";

export const MAX_FILE_BYTES = 2 * 2 ** 20; // the service's own limit of a body, unless it was started with another

/** The lines of a text that are not blank; a tab divides one into a pair. */
export function fromLines(text) {
  return text
    .split(/\r\n|\r|\n/)
    .filter((line) => line.trim())
    .map((line) => {
      const [first, ...rest] = line.split("\t");
      return rest.length ? { text: first, text_pair: rest.join("\t") } : line;
    });
}

/** Inputs from the rows of a table; `pair` is -1 for single texts. Rows with a blank text are left out. */
export function fromRows(rows, column, pair) {
  return rows
    .filter((row) => (row[column] ?? "").trim())
    .map((row) => (pair < 0 ? row[column] : { text: row[column], text_pair: row[pair] ?? "" }));
}

/** A file's text. Throws an Error whose message is for people. */
export async function readFile(file, limit) {
  if (file.size > limit) {
    throw new Error(
      `${file.name} has ${megabytes(file.size)} and this page reads up to ${megabytes(limit)}; ` +
        "robal predict labels larger files.",
    );
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is not UTF-8; save it in that encoding.`);
  }
}

/** Whether a file's name says that it is a table. */
export const isTable = (name) => /\.(csv|tsv)$/i.test(name);

/** Rows of a CSV (RFC 4180; comma, semicolon or tab, whichever its first line has most of). */
export function parseTable(text) {
  const delimiter = likeliestDelimiter(text);
  const rows = [];
  let row = [];
  let at = 0;
  const endRow = () => {
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
  };
  while (at < text.length) {
    let cell = "";
    if (text[at] === '"') {
      const began = rows.length + 1;
      for (at += 1; ; at += 1) {
        const quote = text.indexOf('"', at);
        if (quote < 0) throw new Error(`row ${began} has a quotation mark that is never closed.`);
        cell += text.slice(at, quote);
        at = quote + 1;
        if (text[at] !== '"') break;
        cell += '"';
      }
    }
    const start = at;
    while (at < text.length && text[at] !== delimiter && text[at] !== "\n" && text[at] !== "\r") at += 1;
    row.push(cell + text.slice(start, at));
    if (text[at] === delimiter) {
      at += 1;
      if (at < text.length) continue;
      row.push("");
    } else if (text[at] === "\r" && text[at + 1] === "\n") at += 2;
    else at += 1;
    endRow();
  }
  if (!rows.length) throw new Error("the file has no rows.");
  return rows;
}

function likeliestDelimiter(text) {
  const first = text.slice(0, 10_000).replaceAll(/"[^"]*"/g, "").split(/[\r\n]/, 1)[0];
  const count = (mark) => first.split(mark).length;
  return [",", ";", "\t"].reduce((best, mark) => (count(mark) > count(best) ? mark : best));
}
