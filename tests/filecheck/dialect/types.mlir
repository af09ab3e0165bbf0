// RUN: %roundtrip
// The types: lags, cuts, owners.

rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.verifier @correct outcome("rule:exact_match")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %good = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    // CHECK: %old = rpeg.stale %actor {low = 0 : i64, high = 2 : i64}
    %old = rpeg.stale %actor {low = 0, high = 2}
    // CHECK: %y, %lp = rpeg.generate %old, %q {n = 8 : i64, max_tokens = 8 : i64, top_p = 9.000000e-01 : f64}
    %y, %lp = "rpeg.generate"(%old, %q) <{n = 8 : i64, max_tokens = 8 : i64, temperature = 1.0 : f64, top_p = 0.9 : f64, max_turns = 1 : i64, dtype = "bf16", routing = "free", seed = 0 : i64}> : (!rpeg.weights<@actor, policy, lag = [0, 2]>, !rpeg.prompts<4>) -> (!rpeg.traj<@actor cut, 4, n = 8, lag = [0, 2]>, !rpeg.tok<logprob, @actor sampled>)
    // CHECK: %e = rpeg.loss.entropy %y
    %e = "rpeg.loss.entropy"(%y) <{coef = 0.1 : f64}> : (!rpeg.traj<@actor cut, 4, n = 8, lag = [0, 2]>) -> !rpeg.loss<@actor>
    // CHECK: %y2, %lp2 = rpeg.generate %old, %q {n = 8 : i64, max_tokens = 8 : i64, dtype = "fp8", bound = "strict", overflow = "resume", old_spans = "mask"}
    %y2, %lp2 = "rpeg.generate"(%old, %q) <{n = 8 : i64, max_tokens = 8 : i64, temperature = 1.0 : f64, top_p = 1.0 : f64, max_turns = 1 : i64, dtype = "fp8", bound = "strict", overflow = "resume", old_spans = "mask", routing = "free", seed = 0 : i64}> : (!rpeg.weights<@actor, policy, lag = [0, 2]>, !rpeg.prompts<4>) -> (!rpeg.traj<@actor, 4, n = 8, lag = [0, 2] strict resume mask, multi, fp8>, !rpeg.tok<logprob, @actor sampled>)
    // CHECK: %c, %y3, %lp3, %train_2 = rpeg.collect %train_1 {groups = 2 : i64, max_rounds = 3 : i64}
    %c, %y3, %lp3, %train_2 = "rpeg.collect"(%train_1) <{groups = 2 : i64, max_rounds = 3 : i64}> ({
      %q1, %train_3 = rpeg.batch %train_1 {size = 4}
      %ys, %lps = rpeg.generate %actor, %q1 {n = 8, max_tokens = 8}
      %rs = rpeg.score %good, %ys
      "rpeg.keep"(%rs, %ys, %lps, %train_3) <{where = "mixed"}> : (!rpeg.seq<reward>, !rpeg.traj<@actor, 4, n = 8>, !rpeg.tok<logprob, @actor sampled>, !rpeg.cursor<@train, prompts>) -> ()
    }) : (!rpeg.cursor<@train, prompts>) -> (!rpeg.seq<reward, batch>, !rpeg.traj<@actor, 2, n = 8>, !rpeg.tok<logprob, @actor sampled, batch>, !rpeg.cursor<@train, prompts>)
    // CHECK: %adv = rpeg.group_advantage %c {baseline = "mean", scale = "std"}
    %adv = "rpeg.group_advantage"(%c) <{baseline = "mean", scale = "std"}> : (!rpeg.seq<reward, batch>) -> !rpeg.seq<advantage, batch>
    // CHECK: %pg = rpeg.loss.policy_gradient %y3, %adv
    %pg = "rpeg.loss.policy_gradient"(%y3, %adv) : (!rpeg.traj<@actor, 2, n = 8>, !rpeg.seq<advantage, batch>) -> !rpeg.loss<@actor, batch>
    rpeg.yield %actor, %train_2
  }
}
