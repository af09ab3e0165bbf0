// RUN: %rpeg-opt %s --split-input-file --verify-diagnostics
// Mistakes that only MLIR can make, each with its line and column.

rpeg.pipeline @types {
  rpeg.model @actor policy("x")
  rpeg.model @ref policy(@actor)
  rpeg.data @train prompts("y")
  // expected-error@+1:3 {{state 1 is not the version at the start of the step}}
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy, lag = [1, 1]>, %train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:5 {{@ref is read as !rpeg.weights<@ref, value>; it is !rpeg.weights<@ref, policy>}}
    %ref = rpeg.get @ref : !rpeg.weights<@ref, value>
    // expected-error@+1:5 {{`trian` is not declared in this pipeline; did you mean `train`?}}
    %t = rpeg.get @trian : !rpeg.data<@trian, prompts>
    // expected-error@+1:9 {{result 2 is !rpeg.cursor<@train, demos>; from its operands it is !rpeg.cursor<@train, prompts>}}
    %q, %c = "rpeg.batch"(%train) <{size = 4 : i64, order = "shuffle", seed = 0 : i64}> : (!rpeg.cursor<@train, prompts>) -> (!rpeg.prompts<4>, !rpeg.cursor<@train, demos>)
    // expected-error@+1:16 {{only generate may read older weights; rpeg.yield reads actor@i}}
    rpeg.yield %actor, %train
  }
}

// -----

rpeg.pipeline @states {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  // expected-error@+1:3 {{`actor` is never yielded: a step ends with a version of each of its states, the one it began with if nothing changes it}}
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %q, %c = rpeg.batch %train {size = 4}
    // expected-error@+1:5 {{every ends with rpeg.yield}}
    rpeg.every {steps = 2} {
      rpeg.checkpoint
    }
    // expected-error@+1:5 {{every carries 1 states and yields 0}}
    rpeg.every %c {steps = 2} {
      rpeg.yield
    }
    rpeg.yield %c
  }
}

// -----

rpeg.pipeline @swapped {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  // expected-error@+2:3 {{`actor` is never yielded}}
  // expected-error@+1:3 {{the position in `train` is yielded twice: each state of a step has one next version}}
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    rpeg.yield %train, %train
  }
}

// -----

rpeg.pipeline @crossed {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  // expected-error@+2:3 {{state 1 starts as !rpeg.weights<@actor, policy> and ends as !rpeg.cursor<@train, prompts>}}
  // expected-error@+1:3 {{state 2 starts as !rpeg.cursor<@train, prompts> and ends as !rpeg.weights<@actor, policy>}}
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    rpeg.yield %train, %actor
  }
}

// -----

rpeg.pipeline @cycle {
  rpeg.model @actor policy("x")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>) {
    // expected-error@+1:30 {{zero-distance cycle: a -> c -> b -> a: each needs the one before it in the same step; read the version of an earlier step}}
    %a = "rpeg.weighted_sum"(%b) <{weights = [1.0 : f64]}> : (!rpeg.seq<reward>) -> !rpeg.seq<reward>
    %c = rpeg.weighted_sum %a {weights = [1.0]}
    %b = rpeg.weighted_sum %c {weights = [1.0]}
    rpeg.yield %actor
  }
}

// -----

rpeg.pipeline @without_yield {
  rpeg.data @train prompts("y")
  // expected-error@+1:3 {{a step ends with rpeg.yield}}
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    rpeg.checkpoint
  }
}

// -----

rpeg.pipeline @order {
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:28 {{%c is used before its definition}}
    %q, %c2 = "rpeg.batch"(%c) <{size = 4 : i64, order = "shuffle", seed = 0 : i64}> : (!rpeg.cursor<@train, prompts>) -> (!rpeg.prompts<4>, !rpeg.cursor<@train, prompts>)
    %r, %c = rpeg.batch %train {size = 4}
    rpeg.yield %c2
  }
}

// -----

rpeg.pipeline @custom_order {
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:27 {{%trian is not defined above this use; did you mean `train`?}}
    %q, %c2 = rpeg.batch  %trian {size = 4}
    rpeg.yield %c2
  }
}

// -----

// expected-error@+1:14 {{%x is never defined}}
"rpeg.yield"(%x) : (!rpeg.metric) -> ()

// -----

rpeg.pipeline @settings {
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:33 {{batch has no setting `sise`; did you mean `size`?}}
    %q, %c = rpeg.batch %train {sise = 4}
    // expected-error@+2:33 {{size: expected a whole number}}
    // expected-error@+1:48 {{order=random: expected shuffle | sequential}}
    %p, %d = rpeg.batch %train {size = "four", order = "random"}
    rpeg.yield %train
  }
}

// -----

rpeg.pipeline @operations {
  rpeg.step i < 3 () {
    // expected-error@+1:5 {{`rpeg.chekpoint` is not an operation; did you mean `rpeg.checkpoint`?}}
    rpeg.chekpoint
  }
}

// -----

// expected-error@+1:1 {{rpeg.checkpoint belongs inside rpeg.step}}
rpeg.checkpoint
// expected-error@+1:1 {{rpeg.pool belongs inside rpeg.plan}}
rpeg.pool @all #rpeg.record<nodes, {which = [0, 3]}>

// -----

// expected-error@+1:1 {{a pipeline has one step; `two` has 0}}
rpeg.pipeline @two {
  // expected-error@+1:3 {{`polcy` is not a kind of model; did you mean `policy`?}}
  rpeg.model @a polcy("x")
  rpeg.model @b policy("x")
}

// -----

rpeg.pipeline @shapes {
  // expected-error@+1:3 {{rpeg.expect: `distribution` is missing}}
  "rpeg.expect"() <{target = "y"}> : () -> ()
  // expected-error@+1:3 {{rpeg.step: region 'body' at position 0 expected a single block, but got 0 blocks}}
  "rpeg.step"() <{index = "i", count = 3 : i64}> ({}) : () -> ()
}

// -----

// expected-error@+1:52 {{expected ']'}}
rpeg.get @x : !rpeg.weights<@x, policy, lag = [0, 1}>

// -----

// expected-error@+1:15 {{a lag range goes from the newest version to the oldest}}
rpeg.get @x : !rpeg.weights<@x, policy, lag = [2, 1]>

// -----

// expected-error@+1:24 {{the string does not end on its line}}
rpeg.data @x prompts(  "gym:countdown)

// -----

// expected-error@+1:15 {{'rpeg.thing' is not registered}}
rpeg.get @x : !rpeg.thing

// -----

rpeg.pipeline @ranks {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.ranks @all 0 to 1
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %q, %train_1 = rpeg.batch %train {size = 4}
    // expected-error@+1 {{rpeg.generate has no process group: write attributes {pool = "all"}}}
    %y, %lp = rpeg.generate %actor, %q {max_tokens = 8} attributes {stage = "y"}
    // expected-error@+1 {{`al` is not a process group; did you mean `all`?}}
    %z, %lz = rpeg.generate %actor, %q {max_tokens = 8} attributes {stage = "z", pool = "al"}
    // expected-error@+1 {{tp x pp x cp x dp = 4, `all` has 2 ranks}}
    %w, %lw = rpeg.generate %actor, %q {max_tokens = 8} attributes {stage = "w", pool = "all", par = #rpeg.record<par, {dp = 4 : i64}>}
    rpeg.yield %actor, %train_1
  }
}

// -----

rpeg.pipeline @buffers {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>, %queue : !rpeg.buffer<@queue, capacity = 2, age = 1, fifo, [!rpeg.traj<@actor, 1, n = 1>, !rpeg.tok<logprob, @actor sampled>]>) {
    %q, %train_1 = rpeg.batch %train {size = 4}
    %y, %lp = rpeg.generate %actor, %q {max_tokens = 8}
    %p, %train_2 = rpeg.batch %train_1 {size = 1}
    %x, %lx = rpeg.generate %actor, %p {max_tokens = 8}
    // expected-error@+1:26 {{`queue` holds 2 groups, and 4 are pushed at once: this never ends; write capacity = 4 or more}}
    %queue_1 = rpeg.push %queue, %y, %lp
    // expected-error@+1:5 {{`queue` holds 2 values per group; 1 are pushed}}
    %queue_2 = rpeg.push %queue_1, %y
    %old = rpeg.logprob %actor, %x
    // expected-error@+1:40 {{`queue` holds !rpeg.tok<logprob, @actor sampled> here; `old` is !rpeg.tok<logprob, @actor> a group}}
    %queue_3 = rpeg.push %queue_2, %x, %old
    // expected-error@+1:44 {{`queue` holds 2 groups, one pop takes 3: this never starts; write capacity = 3 or more}}
    %z, %lz, %queue_4 = rpeg.pop %queue_3 {groups = 3}
    rpeg.yield %actor, %train_2, %queue_4
  }
}

// -----

// expected-error@+1:15 {{a buffer's first row is the trajectories of one prompt}}
rpeg.get @x : !rpeg.buffer<@q, capacity = 2, age = 1, fifo, [!rpeg.seq<reward>]>

// -----

rpeg.pipeline @nameless_index {
  rpeg.data @train prompts("y")
  // expected-error@+1:3 {{the index of a step is a plain name, not "1"}}
  "rpeg.step"() <{index = "1", count = 3 : i64}> ({
  ^bb0(%train: !rpeg.cursor<@train, prompts>):
    rpeg.yield %train
  }) : () -> ()
}

// -----

rpeg.pipeline @nothing_summed {
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:5 {{rpeg.weighted_sum: it needs per-response reward as `rewards`}}
    %r = "rpeg.weighted_sum"() <{weights = []}> : () -> !rpeg.seq<reward, sample>
    rpeg.yield %train
  }
}

// -----

rpeg.pipeline @defaults {
  // expected-error@+4 {{`actor` has an optimizer but no step makes actor@i+1}}
  // expected-error@+3 {{adamw needs the setting `beta1`: write beta1=0.9}}
  // expected-error@+2 {{adamw needs the setting `beta2`: write beta2=0.999}}
  // expected-error@+1 {{adamw needs the setting `schedule`: write schedule=constant}}
  rpeg.model @actor policy("x") {optim = #rpeg.record<adamw, {lr = 1.0e-6 : f64, weight_decay = 0.0 : f64, grad_clip = 1.0 : f64, warmup = 0 : i64}>}
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    rpeg.yield %train
  }
}

// -----

rpeg.pipeline @nothing_fused {
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>) {
    // expected-error@+1:5 {{rpeg.fuse: region 'body' at position 0 expected a single block, but got 0 blocks}}
    rpeg.fuse {} {
    }
    rpeg.yield %train
  }
}
