// Trained as shards of matrices (tp2) on one group, published as pipeline stages (pp2) to another.
rpeg.pipeline @p {
  rpeg.model @actor policy("tiny") {optim = #rpeg.record<adamw, {lr = 3.0e-4 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>, dtype = "fp32"}
  rpeg.model @ref policy(@actor) {dtype = "fp32"}
  rpeg.data @train prompts("rows.jsonl")
  rpeg.verifier @brief outcome("rule:overlong") {soft = 0 : i64, max = 6 : i64}
  rpeg.ranks @trainer 0 to 1
  rpeg.ranks @engine 2 to 3
  rpeg.step i < 5 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>, %published: !rpeg.weights<@actor, policy>) {
    %brief = rpeg.get @brief : !rpeg.verifier<@brief, outcome>
    %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
    %q, %train_1 = rpeg.batch %train {size = 4 : i64}
    %y, %lp = rpeg.generate %published, %q {n = 4 : i64, max_tokens = 6 : i64} attributes {stage = "y", pool = "engine", par = #rpeg.record<par, {pp = 2 : i64}>}
    %short = rpeg.score %brief, %y attributes {stage = "short", pool = "engine"}
    %adv = rpeg.group_advantage %short {baseline = "mean", scale = "std"}
    %y_here = rpeg.transfer %y attributes {pool = "trainer"}
    %lp_old = rpeg.logprob %actor, %y_here attributes {stage = "lp_old", pool = "trainer", par = #rpeg.record<par, {tp = 2 : i64}>}
    %ref_there = rpeg.reshard %ref attributes {pool = "trainer", par = #rpeg.record<par, {dp = 2 : i64}>}
    %lp_ref = rpeg.logprob %ref_there, %y_here attributes {stage = "lp_ref", pool = "trainer", par = #rpeg.record<par, {dp = 2 : i64}>}
    %pg = rpeg.loss.ppo_clip %y_here, %adv, %lp_old {clip_low = 0.2 : f64, clip_high = 0.2 : f64}
    %kl = rpeg.loss.kl %y_here, %lp_ref {coef = 0.5 : f64}
    %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {agg = "token_mean", minibatches = 2 : i64} attributes {pool = "trainer", par = #rpeg.record<par, {tp = 2 : i64}>}
    %published_1 = rpeg.publish %actor_1 attributes {pool = "engine", par = #rpeg.record<par, {pp = 2 : i64}>}
    rpeg.yield %actor_1, %actor_opt_1, %train_1, %published_1
  }
}
