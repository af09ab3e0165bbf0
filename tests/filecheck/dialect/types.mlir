// RUN: %roundtrip
// The types: lags, cuts, owners.

rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %q, %train_1 = rpeg.batch %train {size = 4}
    // CHECK: %old = rpeg.stale %actor {low = 0 : i64, high = 2 : i64}
    %old = rpeg.stale %actor {low = 0, high = 2}
    // CHECK: %y, %lp = rpeg.generate %old, %q {n = 8 : i64, max_tokens = 8 : i64, top_p = 9.000000e-01 : f64}
    %y, %lp = "rpeg.generate"(%old, %q) <{n = 8 : i64, max_tokens = 8 : i64, temperature = 1.0 : f64, top_p = 0.9 : f64, max_turns = 1 : i64, dtype = "bf16", routing = "free", seed = 0 : i64}> : (!rpeg.weights<@actor, policy, lag = [0, 2]>, !rpeg.prompts<4>) -> (!rpeg.traj<@actor cut, 4, n = 8, lag = [0, 2]>, !rpeg.tok<logprob, @actor sampled>)
    // CHECK: %e = rpeg.loss.entropy %y
    %e = "rpeg.loss.entropy"(%y) <{coef = 0.1 : f64}> : (!rpeg.traj<@actor cut, 4, n = 8, lag = [0, 2]>) -> !rpeg.loss<@actor>
    rpeg.yield %actor, %train_1
  }
}
