// RUN: %rpeg-opt %s --verify-diagnostics
// Two process groups, each waiting for the other within one step.

rpeg.pipeline @p {
  rpeg.model @actor policy("x") {optim = #rpeg.record<adamw, {lr = 1.0e-03 : f64, beta1 = 0.9 : f64, beta2 = 0.99 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>}
  rpeg.data @train demos("y")
  rpeg.ranks @one 0 to 0
  rpeg.ranks @two 1 to 1
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %opt : !rpeg.opt<@actor>, %train : !rpeg.cursor<@train, demos>) {
    %b, %train_1 = rpeg.batch %train {size = 8} attributes {pool = "one", task = "b"}
    %c, %train_2 = rpeg.batch %train_1 {size = 8} attributes {pool = "one", task = "c"}
    %ce = rpeg.loss.cross_entropy %b attributes {pool = "two", task = "ce"}
    %actor_1, %opt_1 = rpeg.update %actor, %opt, %ce {agg = "token_mean"} attributes {pool = "two", task = "actor"}
    rpeg.yield %actor_1, %opt_1, %train_2
  }
  // expected-error@+1 {{zero-distance cycle: b on one -> ce on two -> actor on two -> b on one: reorder a sequence, or give an edge distance 1}}
  rsched.sequence @one {
    rsched.task "b"
    rsched.task "c"
    rsched.edge "c" to "b" distance 1
  }
  rsched.sequence @two {
    rsched.task "ce"
    rsched.task "actor"
    rsched.edge "actor" to "actor" distance 1
    rsched.edge "actor" to "b" distance 0
  }
}
