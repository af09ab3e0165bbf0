// An engine that is up to one step ahead of the trainer.
rpeg.pipeline @p {
  rpeg.model @actor policy("tiny") {optim = #rpeg.record<adamw, {lr = 3.0e-4 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>, dtype = "fp32"}
  rpeg.model @ref policy(@actor) {dtype = "fp32"}
  rpeg.data @train prompts("rows.jsonl")
  rpeg.verifier @brief outcome("rule:overlong") {soft = 0 : i64, max = 6 : i64}
  rpeg.ranks @engine 0 to 0
  rpeg.ranks @trainer 1 to 1
  rpeg.step i < 5 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>, %published: !rpeg.weights<@actor, policy>) {
    %brief = rpeg.get @brief : !rpeg.verifier<@brief, outcome>
    %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
    %q, %train_1 = rpeg.batch %train {size = 4 : i64}
    %older = rpeg.stale %published {low = 0 : i64, high = 1 : i64}
    %y, %lp = rpeg.generate %older, %q {n = 4 : i64, max_tokens = 6 : i64, bound = "strict", overflow = "wait"} attributes {stage = "y", pool = "engine"}
    %short = rpeg.score %brief, %y attributes {stage = "short", pool = "engine"}
    %adv = rpeg.group_advantage %short {baseline = "mean", scale = "std"}
    %lp_old = rpeg.logprob %actor, %y attributes {stage = "lp_old", pool = "trainer"}
    %lp_ref = rpeg.logprob %ref, %y attributes {stage = "lp_ref", pool = "trainer"}
    %w = rpeg.importance %lp_old, %lp
    %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old, %w {clip_low = 0.2 : f64, clip_high = 0.2 : f64}
    %kl = rpeg.loss.kl %y, %lp_ref {coef = 0.5 : f64}
    %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {agg = "token_mean", minibatches = 2 : i64} attributes {pool = "trainer"}
    %published_1 = rpeg.publish %actor_1 attributes {pool = "engine"}
    rpeg.yield %actor_1, %actor_opt_1, %train_1, %published_1
  }
}
