// Reads the data out of the page and begins.

theme.start();
const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("data").remove();
const runs = data.runs.map(makeRun);
const app = document.getElementById("app");
if (runs.length === 1) singlePage(app, runs[0], data.live);
else comparePage(app, runs);
document.documentElement.dataset.ready = "true";
