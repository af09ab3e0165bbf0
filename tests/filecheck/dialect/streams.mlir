// RUN: %roundtrip
// Chunks: scored as they complete, joined before the update; weights and rows that move.

rpeg.pipeline @p {
  rpeg.model @actor policy("x") {optim = #rpeg.record<adamw, {lr = 1.0e-3 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>}
  rpeg.data @train prompts("y")
  rpeg.verifier @good outcome("rule:exact_match")
  rpeg.ranks @gen 0 to 1
  rpeg.ranks @train_ranks 2 to 3
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %actor_opt : !rpeg.opt<@actor>, %train : !rpeg.cursor<@train, prompts>) {
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    // CHECK: %there = rpeg.reshard %actor attributes {pool = "gen", par = #rpeg.record<par, {tp = 2 : i64}>}
    %there = rpeg.reshard %actor attributes {pool = "gen", par = #rpeg.record<par, {tp = 2 : i64}>}
    %y, %lp = rpeg.generate %there, %q {n = 2, max_tokens = 8} attributes {stage = "y", pool = "gen", par = #rpeg.record<par, {tp = 2 : i64}>}
    // CHECK: %ys = rpeg.stream %y {groups = 1 : i64}
    %ys = rpeg.stream %y {groups = 1}
    %r = rpeg.score %good, %ys attributes {stage = "r", pool = "gen"}
    %a = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
    // CHECK: %a_1 = rpeg.join %a
    %a_1 = rpeg.join %a
    // CHECK: %a_2 = rpeg.transfer %a_1 attributes {pool = "train_ranks"}
    %a_2 = rpeg.transfer %a_1 attributes {pool = "train_ranks"}
    // CHECK: rpeg.stream %y {samples = 3 : i64, order = "index"}
    %yi = rpeg.stream %y {samples = 3, order = "index"}
    %old = rpeg.logprob %actor, %yi attributes {stage = "old", pool = "train_ranks"}
    %old_1 = rpeg.join %old
    %pg = rpeg.loss.ppo_clip %y, %a_2, %old_1 {clip_low = 0.2, clip_high = 0.2}
    %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {agg = "token_mean"} attributes {pool = "train_ranks"}
    rpeg.yield %actor_1, %actor_opt_1, %train_1
  }
}
