// On a narrow screen, a table that does not fit is read as records: each value beside the name of its column.
function asRecords() {
  for (const table of document.querySelectorAll("div.table-wrapper table")) {
    const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent);
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => { cell.dataset.name = names[i] || ""; });
    table.classList.remove("records");
    const fits = table.scrollWidth <= table.parentElement.clientWidth + 1;
    table.classList.toggle("records", !fits && window.matchMedia("(max-width: 46em)").matches);
  }
}
window.addEventListener("load", asRecords);
window.addEventListener("resize", asRecords);

// On a narrow screen, a report's facts, which fold at column 16 of a terminal, stand as paragraphs below their names.
function asParagraphs() {
  const isNarrow = window.matchMedia("(max-width: 46em)").matches;
  for (const line of document.querySelectorAll(".highlight-console .go")) {
    const printed = (line.dataset.printed ??= line.textContent), before = line.previousSibling;
    if (/^ {16}\S/.test(printed) && before?.nodeType === Node.TEXT_NODE) {
      before.nodeValue = isNarrow ? " " : "\n";
      line.textContent = isNarrow ? printed.trim() : printed;
    } else {
      const fact = /^(\S.{0,13}?) {2,}(?<=^.{16})(?=\S)/;
      line.textContent = isNarrow ? printed.replace(fact, "$1\n  ") : printed;
    }
  }
}
window.addEventListener("load", asParagraphs);
window.addEventListener("resize", asParagraphs);
