/** Scripts whose characters take two columns, beside pictures. */
const WIDE_SCRIPT =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]/u;
const PICTURE = /\p{Emoji_Presentation}|[\u{20000}-\u{3fffd}]/u;
const NARROWEST = 8;

/** Recorded text as one line that steers no terminal: control and format characters are spelled out. */
export function oneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

/** Recorded text as indented lines of at most `width` columns. Only its own line ends and tabs mean what they say. */
export function plainLines(text: string, width: number, indent = ""): string[] {
  const columns = Math.max(width - indent.length, NARROWEST);
  return text
    .replaceAll(/\r\n?/g, "\n")
    .replaceAll("\t", "    ")
    .split("\n")
    .flatMap((line) => wrapped(oneLine(line), columns))
    .map((line) => `${indent}${line}`.trimEnd());
}

/** The lines of one line, broken at spaces where there are some. */
function wrapped(line: string, columns: number): string[] {
  const lines: string[] = [];
  let current = "";
  let used = 0;
  for (const word of line.split(/(?<= )(?=[^ ])/u)) {
    const needed = columnsOf(word.trimEnd());
    if (used > 0 && used + needed > columns) {
      lines.push(current);
      [current, used] = ["", 0];
    }
    for (const character of word) {
      const size = columnsOf(character);
      if (used + size > columns && character !== " ") {
        lines.push(current);
        [current, used] = ["", 0];
      }
      current += character;
      used += size;
    }
  }
  return [...lines, current];
}

function columnsOf(text: string): number {
  let columns = 0;
  for (const character of text) {
    if (WIDE_SCRIPT.test(character) || PICTURE.test(character)) columns += 2;
    else if (!/\p{M}/u.test(character)) columns += 1;
  }
  return columns;
}
