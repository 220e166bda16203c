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
