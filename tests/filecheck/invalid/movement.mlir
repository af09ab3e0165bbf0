// RUN: %rpeg-opt %s --split-input-file --verify-diagnostics
// Streams through operations that need more than a chunk; movement that does not say where to.

rpeg.pipeline @streams {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.verifier @good outcome("rule:exact_match")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    %y, %lp = rpeg.generate %actor, %q {n = 2, max_tokens = 8}
    // expected-error@+1:5 {{group_advantage (line 15) works on a whole group, and `y` comes in samples: join the chunks before it}}
    %ys = rpeg.stream %y {samples = 1}
    %r = rpeg.score %good, %ys
    %a = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
    // expected-error@+1:5 {{whiten (line 20) works on a whole batch, and `y` comes in groups: join the chunks before it}}
    %yg = rpeg.stream %y {groups = 1}
    %rg = rpeg.score %good, %yg
    %ag = rpeg.group_advantage %rg {baseline = "mean", scale = "std"}
    %aw = rpeg.whiten %ag
    // expected-error@+1:5 {{a stream has chunks of groups or of samples: give one of the two}}
    %yn = rpeg.stream %y
    // expected-error@+1:23 {{`yg` comes in chunks already}}
    %yy = rpeg.stream %yg {groups = 1}
    // expected-error@+1:20 {{`lp` does not come in chunks: leave the join out}}
    %j = rpeg.join %lp
    // expected-error@+1:5 {{rpeg.reshard says where to: write attributes {pool = ...}}}
    %w = rpeg.reshard %actor attributes {par = #rpeg.record<par, {tp = 2 : i64}>}
    // expected-error@+1:5 {{rpeg.transfer says where to: write attributes {pool = ...}}}
    %t = rpeg.transfer %lp
    rpeg.yield %actor, %train_1
  }
}

// -----

rpeg.pipeline @updates {
  rpeg.model @actor policy("x") {optim = #rpeg.record<adamw, {lr = 1.0e-3 : f64, beta1 = 0.9 : f64, beta2 = 0.999 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>}
  rpeg.data @train prompts("y")
  rpeg.verifier @good outcome("rule:exact_match")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %actor_opt : !rpeg.opt<@actor>, %train : !rpeg.cursor<@train, prompts>) {
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    %y, %lp = rpeg.generate %actor, %q {n = 2, max_tokens = 8}
    // expected-error@+1:5 {{the update in line 50 takes 2 optimizer steps, so it needs its batch whole: join the chunks of `y` before it}}
    %ys = rpeg.stream %y {groups = 1}
    %r = rpeg.score %good, %ys
    %a = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
    %pg = rpeg.loss.ppo_clip %y, %a, %lp {clip_low = 0.2, clip_high = 0.2}
    %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {agg = "token_mean", minibatches = 2}
    rpeg.yield %actor_1, %actor_opt_1, %train_1
  }
}
