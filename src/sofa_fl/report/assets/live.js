// A page that is served asks for rounds that have ended since, and goes on without a reload.

const ASK_EVERY = 1000; // milliseconds

function watchLive(app, seconds = ASK_EVERY) {
  let failures = 0;

  async function ask() {
    try {
      const answer = await fetch(`data?since=${app.run.history.length}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`answer ${answer.status}`);
      take(await answer.json());
      failures = 0;
    } catch {
      failures += 1;
      if (failures > 2) app.setStatus("not connected; retrying");
    }
    if (!app.run.summary) setTimeout(ask, seconds * Math.min(8, 1 + failures));
  }

  function take(news) {
    const wasLast = app.at >= app.numFrames() - 1 || app.stage !== null;
    if (news.from < app.run.history.length) {
      Object.assign(app.run, { history: [], frames: [] }); // resumed from an earlier round
    }
    const added = news.history.length > 0;
    if (added) addRounds(app.run, news.history);
    app.run.summary = news.summary;
    app.setStatus(statusOf(app.run, true));
    if (added) app.grow(wasLast);
  }

  setTimeout(ask, seconds);
}

function statusOf(run, live) {
  if (run.summary) return live ? "ended" : "";
  const last = run.history[run.history.length - 1];
  const done = last ? `after ${nameOfRound(last.round).toLowerCase()}` : "warm-up in progress";
  return live ? `live, ${done}` : `not ended, ${done}`;
}
