// One optimizer step on groups as they complete: gradients are summed as they come, on two replicas,
// and divided by the tokens of all.
rpeg.pipeline @p {
  rpeg.model @actor policy("tiny") {optim = #rpeg.record<adamw, {lr = 3.0e-4 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>, dtype = "fp32"}
  rpeg.model @ref policy(@actor) {dtype = "fp32"}
  rpeg.data @train prompts("rows.jsonl")
  rpeg.verifier @brief outcome("rule:overlong") {soft = 0 : i64, max = 6 : i64}
  rpeg.ranks @all 0 to 1
  rpeg.step i < 5 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
    %brief = rpeg.get @brief : !rpeg.verifier<@brief, outcome>
    %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
    %q, %train_1 = rpeg.batch %train {size = 4 : i64}
    %y, %lp = rpeg.generate %actor, %q {n = 4 : i64, max_tokens = 6 : i64} attributes {stage = "y", pool = "all"}
    %groups = rpeg.stream %y {groups = 1 : i64}
    %short = rpeg.score %brief, %groups attributes {stage = "short", pool = "all"}
    %adv = rpeg.group_advantage %short {baseline = "mean", scale = "std"}
    %lp_old = rpeg.logprob %actor, %groups attributes {stage = "lp_old", pool = "all", par = #rpeg.record<par, {dp = 2 : i64}>}
    %lp_ref = rpeg.logprob %ref, %groups attributes {stage = "lp_ref", pool = "all", par = #rpeg.record<par, {dp = 2 : i64}>}
    %pg = rpeg.loss.ppo_clip %groups, %adv, %lp_old {clip_low = 0.2 : f64, clip_high = 0.2 : f64}
    %kl = rpeg.loss.kl %groups, %lp_ref {coef = 0.5 : f64}
    %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {agg = "token_mean"} attributes {pool = "all", par = #rpeg.record<par, {dp = 2 : i64}>, mb = #rpeg.record<mb, {seqs = 3 : i64}>}
    rpeg.yield %actor_1, %actor_opt_1, %train_1
  }
}
