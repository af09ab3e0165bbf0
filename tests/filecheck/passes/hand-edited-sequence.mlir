// RUN: %rpeg-opt %s --verify-diagnostics
builtin.module {
  rpeg.pipeline @p {
    rpeg.model @actor policy("tiny") {optim = #rpeg.record<adamw, {lr = 1.0e-03 : f64, beta1 = 0.9 : f64, beta2 = 0.99 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.data @train demos("rows.jsonl")
    rpeg.ranks @all 0 to 0
    rpeg.step i < 10 (%actor: !rpeg.weights<@actor, policy>, %opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, demos>) {
      %b, %train_1 = rpeg.batch %train {size = 4 : i64} attributes {task = "b"}
      %ce = rpeg.loss.cross_entropy %b attributes {task = "ce"}
      %actor_1, %opt_1 = rpeg.update %actor, %opt, %ce {agg = "token_mean"} attributes {task = "actor", pool = "all"}
      rpeg.yield %actor_1, %opt_1, %train_1
    }
    // expected-error@+1 {{the sequence leaves out actor}}
    rsched.sequence @all {
      rsched.task "ce"
      rsched.task "b" // expected-error {{`ce` runs before `b`: it reads what the other makes}}
      rsched.edge "b" to "b" distance 1
      rsched.edge "actor" to "ce" distance 1
      rsched.edge "ce" to "b" distance 0
      rsched.edge "b" to "ce" distance 0 // expected-error {{zero-distance cycle: ce -> b -> ce: `b` does not run before `ce` in this sequence; write distance 1, or move the task}}
      rsched.edge "actr" to "ce" distance 1 // expected-error {{`actr` is not a task of the step; did you mean `actor`?}}
      rsched.edge "ce" to "b" distance -1 // expected-error {{distance -1: an edge leads to this step (0) or a later one}}
    }
    // expected-error@+2 {{`actor` reads what `actor` of an earlier step makes: write rsched.edge "actor" to "actor" distance 1}}
    // expected-error@+1 {{`al` is not a process group; did you mean `all`?}}
    rsched.sequence @al {
      rsched.task "b"
      rsched.task "ce"
      rsched.task "actor"
      rsched.edge "b" to "b" distance 1
    }
  }
}
