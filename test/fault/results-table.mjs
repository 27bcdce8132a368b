const START = "<!-- results -->";
const END = "<!-- /results -->";
const HEADINGS = [
  "promise",
  "part",
  "counted",
  "wanted",
  "violations",
  "planted faults",
  "figures",
];

/** In the order of a report. */
export function sortedParts(parts) {
  return parts.toSorted(
    (one, other) => one.promise - other.promise || (one.part < other.part ? -1 : 1),
  );
}

/** What is wrong with the results of a full run, one line each. */
export function shortfalls(parts) {
  return parts.flatMap(({ part, counted, count, wanted, violations, planted }) => [
    ...(count < wanted ? [`${part}: ${count} of ${wanted} ${counted}`] : []),
    ...(violations > 0 ? [`${part}: ${violations} violations`] : []),
    ...(planted.length === 0 ? [`${part}: no planted fault`] : []),
    ...planted.flatMap(({ name, caught }) => (caught > 0 ? [] : [`${part}: ${name} not caught`])),
  ]);
}

/** A report as a Markdown table; without one a line that says so. */
export function renderTable(report) {
  if (report === undefined) return "No full run has been recorded yet.";
  const { date, seed, node, scale, parts } = report;
  const rows = parts.map((result) => [
    String(result.promise),
    result.part,
    `${result.count} ${result.counted}`,
    String(result.wanted),
    String(result.violations),
    result.planted.map(({ name, caught }) => `${name}: caught ${caught} times`).join("; "),
    Object.entries(result.figures ?? {})
      .map(([name, value]) => `${name} ${value}`)
      .join("; "),
  ]);
  const widths = HEADINGS.map((heading, column) =>
    Math.max(3, heading.length, ...rows.map((row) => row[column].length)),
  );
  const line = (cells) => `| ${cells.map((cell, at) => cell.padEnd(widths[at])).join(" | ")} |`;
  const lines = [HEADINGS, widths.map((width) => "-".repeat(width)), ...rows].map(line);
  return [`Run of ${date} with Node ${node}, SEED=${seed}, scale ${scale}:`, "", ...lines].join(
    "\n",
  );
}

/** A page with the table of a report between its marks. */
export function withTable(page, report) {
  const start = page.indexOf(START);
  const end = page.indexOf(END);
  if (start < 0 || end < start) throw new Error(`the page has no ${START} and ${END}`);
  const before = page.slice(0, start + START.length);
  return `${before}\n\n${renderTable(report)}\n\n${page.slice(end)}`;
}
