// RUN: %rpeg-opt %s --split-input-file --verify-diagnostics
// Mistakes of the golden file that are rules of the IR: MLIR gets the messages that text gets.
// Chunk titles are those of tests/golden/mistakes.golden; a test compares the messages.

// 20 unknown choice
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2")
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 64 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      // expected-error@+1:59 {{agg=tokenmean: expected token_mean | seq_mean_token_mean | seq_mean_token_sum | pair_mean | constant; did you mean `token_mean`?}}
      %actor_1, %0 = rpeg.update %actor, %actor_opt, %kl {agg = "tokenmean"}
      rpeg.yield %actor_1, %0, %train
    }
  }
}

// -----

// 26 name of a result taken in its region
builtin.module {
  rpeg.pipeline @dapo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-32B")
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.verifier @correct outcome("rule:math")
    rpeg.step i < 300 (%train: !rpeg.cursor<@train, prompts>) {
      %actor = rpeg.get @actor : !rpeg.weights<@actor, policy>
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %acc, %z, %lp, %train_1 = rpeg.collect %train {groups = 384 : i64, max_rounds = 10 : i64} {
      ^bb0(%train_2: !rpeg.cursor<@train, prompts>):
        %q, %train_3 = rpeg.batch %train_2 {size = 384 : i64}
        %y, %lps = rpeg.generate %actor, %q {max_tokens = 64 : i64}
        %y2, %lps2 = rpeg.generate %actor, %q {max_tokens = 64 : i64}
        %accs = rpeg.score %correct, %y2
        // expected-error@+1:31 {{`lps` belongs to the trajectories `y`: keep `y` too}}
        rpeg.keep %accs, %y2, %lps, %train_3 {where = "mixed"}
      }
      rpeg.yield %train
    }
  }
}

// -----

// 32 two updates of one model
builtin.module {
  rpeg.pipeline @ppo_shared {
    rpeg.model @ac actor_critic("hf:Qwen/Qwen2.5-7B-Instruct") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@ac)
    rpeg.verifier @correct outcome("rule:math")
    rpeg.data @train prompts("data/math_12k.jsonl")
    rpeg.step i < 500 (%ac: !rpeg.weights<@ac, actor_critic>, %ac_opt: !rpeg.opt<@ac>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 256 : i64}
      %y, %lp = rpeg.generate %ac, %q {max_tokens = 2048 : i64}
      %r = rpeg.score %correct, %y
      %lp_old = rpeg.logprob %ac, %y
      %lp_ref = rpeg.logprob %ref, %y
      %v = rpeg.values %ac, %y
      %rt = rpeg.kl_penalty %r, %lp_old, %lp_ref {coef = 1.000000e-03 : f64}
      %raw, %ret = rpeg.gae %rt, %v
      %adv = rpeg.whiten %raw
      %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old {clip_low = 2.000000e-01 : f64, clip_high = 2.000000e-01 : f64}
      %ent = rpeg.loss.entropy %y {coef = 1.000000e-03 : f64}
      %ac_1, %ac_opt_1 = rpeg.update %ac, %ac_opt, %pg {agg = "token_mean"}
      // expected-error@+1:7 {{ac@i+1 is made twice: a state gets one new version per step; give both losses to one update}}
      %ac_2, %ac_opt_2 = rpeg.update %ac, %ac_opt, %ent {agg = "token_mean"}
      rpeg.yield %ac_2, %ac_opt, %train
    }
  }
}

// -----

// 33 old weights elsewhere
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %actor_2 = rpeg.stale %actor {low = 1 : i64, high = 1 : i64}
      // expected-error@+1:28 {{only generate may read older weights; logprob reads actor@i}}
      %prox = rpeg.logprob %actor_2, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_3, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_3, %actor_opt, %train
    }
  }
}

// -----

// 34 staleness not corrected
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.verifier @correct outcome("rule:math")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %actor_1 = rpeg.stale %actor {low = 0 : i64, high = 2 : i64}
      %y, %lp = rpeg.generate %actor_1, %q {n = 16 : i64, max_tokens = 8192 : i64}
      %r = rpeg.score %correct, %y
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      %prox = rpeg.logprob %actor, %y
      %w = rpeg.importance %prox, %lp
      // expected-error@+1:7 {{`y` may be 2 versions old, ppo_clip covers 1 here (anchored at behaviour): write ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.28)}}
      %pg = rpeg.loss.ppo_clip %y, %adv, %lp {clip_low = 2.000000e-01 : f64, clip_high = 2.800000e-01 : f64}
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
  }
}

// -----

// 35 wrong log-probs
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2") {optim = #rpeg.record<adamw, {lr = 3.000000e-04 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    rpeg.verifier @correct outcome("gym:countdown")
    rpeg.verifier @tagged outcome("rule:answer_tag")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %tagged = rpeg.get @tagged : !rpeg.verifier<@tagged, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {n = 8 : i64, max_tokens = 64 : i64}
      %acc = rpeg.score %correct, %y
      %fmt = rpeg.score %tagged, %y
      %r = rpeg.weighted_sum %acc, %fmt {weights = [1.000000e+00 : f64, 1.000000e-01 : f64]}
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      // expected-error@+1:42 {{`old` is the trained model's own log-probs (actor); `lp_ref` was made by `ref`}}
      %pg = rpeg.loss.ppo_clip %y, %adv, %lp_ref {clip_low = 2.000000e-01 : f64, clip_high = 2.000000e-01 : f64}
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}

// -----

// 36 per-response reward in gae
builtin.module {
  rpeg.pipeline @ppo_rlhf {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B-Instruct")
    rpeg.model @critic value("hf:Qwen/Qwen2.5-7B-Instruct")
    rpeg.model @rm reward("hf:Skywork/Skywork-Reward-V2-Qwen3-4B")
    rpeg.data @train prompts("data/ultrafeedback.jsonl")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %critic: !rpeg.weights<@critic, value>, %critic_opt: !rpeg.opt<@critic>, %train: !rpeg.cursor<@train, prompts>) {
      %rm = rpeg.get @rm : !rpeg.weights<@rm, reward>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 1024 : i64}
      %r = rpeg.score %rm, %y
      %lp_old = rpeg.logprob %actor, %y
      %v = rpeg.values %critic, %y
      // expected-error@+1:29 {{gae takes per-token reward as `rewards`; `r` is per-response reward}}
      %raw, %ret = rpeg.gae %r, %v
      %adv = rpeg.whiten %raw
      %pg = rpeg.loss.ppo_clip %y, %adv, %lp_old {clip_low = 2.000000e-01 : f64, clip_high = 2.000000e-01 : f64}
      %vl = rpeg.loss.value %y, %ret, %v {clip = 2.000000e-01 : f64}
      %critic_1, %0 = rpeg.update %critic, %critic_opt, %vl {agg = "token_mean"}
      %actor_1, %actor_opt_1 = rpeg.every %actor, %actor_opt {steps = 1 : i64} {
        %actor_2, %1 = rpeg.update %actor, %actor_opt, %pg {agg = "token_mean"}
        rpeg.yield %actor_2, %1
      }
      rpeg.yield %actor_1, %actor_opt, %critic_1, %0, %train
    }
  }
}

// -----

// 37 groups of one
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2") {optim = #rpeg.record<adamw, {lr = 3.000000e-04 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    rpeg.verifier @correct outcome("gym:countdown")
    rpeg.verifier @tagged outcome("rule:answer_tag")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %tagged = rpeg.get @tagged : !rpeg.verifier<@tagged, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 64 : i64}
      %acc = rpeg.score %correct, %y
      %fmt = rpeg.score %tagged, %y
      %r = rpeg.weighted_sum %acc, %fmt {weights = [1.000000e+00 : f64, 1.000000e-01 : f64]}
      // expected-error@+1:7 {{group_advantage compares the responses of one prompt: generate needs n >= 2}}
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}

// -----

// 38 REINFORCE over several minibatches
builtin.module {
  rpeg.pipeline @rloo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-3B-Instruct") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.model @rm reward("hf:Skywork/Skywork-Reward-V2-Qwen3-4B")
    rpeg.data @train prompts("data/ultrafeedback.jsonl")
    rpeg.step i < 800 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %rm = rpeg.get @rm : !rpeg.weights<@rm, reward>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 128 : i64}
      %y, %lp = rpeg.generate %actor, %q {n = 4 : i64, max_tokens = 512 : i64}
      %r = rpeg.score %rm, %y
      %lp_ref = rpeg.logprob %ref, %y
      %rt = rpeg.kl_penalty %r, %lp, %lp_ref {coef = 3.000000e-02 : f64}
      %rs = rpeg.sum_tokens %rt
      %adv = rpeg.group_advantage %rs {baseline = "leave_one_out", scale = "none"}
      %pg = rpeg.loss.policy_gradient %y, %adv
      // expected-error@+1:64 {{policy_gradient is right for one optimizer step; this update takes 4 (epochs x minibatches): use ppo_clip, or 1}}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {agg = "seq_mean_token_sum", minibatches = 4 : i64}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}

// -----

// 39 training a model without an optimizer
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2")
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 64 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      // expected-error@+1:44 {{`actor` has no optimizer: add optim=adamw(lr=...) to its declaration at 254:5}}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor, %actor_opt, %train
    }
  }
}

// -----

// 40 optimizer but no update
builtin.module {
  rpeg.pipeline @rloo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-3B-Instruct") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    // expected-error@+1:5 {{`rm` has an optimizer but no step makes rm@i+1: add an update, or remove optim}}
    rpeg.model @rm reward("hf:Skywork/Skywork-Reward-V2-Qwen3-4B") {optim = #rpeg.record<adamw, {lr = 1.000000e-05 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.data @train prompts("data/ultrafeedback.jsonl")
    rpeg.step i < 800 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %rm = rpeg.get @rm : !rpeg.weights<@rm, reward>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 128 : i64}
      %y, %lp = rpeg.generate %actor, %q {n = 4 : i64, max_tokens = 512 : i64}
      %r = rpeg.score %rm, %y
      %lp_ref = rpeg.logprob %ref, %y
      %rt = rpeg.kl_penalty %r, %lp, %lp_ref {coef = 3.000000e-02 : f64}
      %rs = rpeg.sum_tokens %rt
      %adv = rpeg.group_advantage %rs {baseline = "leave_one_out", scale = "none"}
      %pg = rpeg.loss.policy_gradient %y, %adv
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {agg = "seq_mean_token_sum"}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}

// -----

// 41 wrong GPU product
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %prox = rpeg.logprob %actor, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 63 : i64]}>
      // expected-error@+1:7 {{tp x pp x cp x dp = 192, the pool `trainer` has 96 GPUs}}
      rpeg.place "prox" on @trainer [#rpeg.record<par, {dp = 48 : i64, tp = 4 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 0 : i64, recompute = "none"}>, #rpeg.record<mb, {tokens = 16384 : i64}>, #rpeg.record<fuse, {with = "actor"}>]
    }
  }
}

// -----

// 42 pool misspelt
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %prox = rpeg.logprob %actor, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @rollout #rpeg.record<nodes, {which = [0 : i64, 39 : i64]}>
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 63 : i64]}>
      // expected-error@+1:7 {{`trainers` is not a pool of this plan; did you mean `trainer`?}}
      rpeg.place "prox" on @trainers [#rpeg.record<par, {dp = 48 : i64, tp = 2 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 0 : i64, recompute = "none"}>, #rpeg.record<mb, {tokens = 16384 : i64}>, #rpeg.record<fuse, {with = "actor"}>]
      rpeg.place "actor" on @trainer [#rpeg.record<par, {dp = 48 : i64, tp = 2 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 1 : i64, recompute = "selective", order = ["tp", "dp"]}>, #rpeg.record<mb, {tokens = 16384 : i64}>, #rpeg.record<publish, {to = "rollout", mode = "relay", overlap = true, bucket = #rpeg.bytes<536870912>}>]
    }
  }
}

// -----

// 43 operation name in a plan
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @rollout #rpeg.record<nodes, {which = [0 : i64, 39 : i64]}>
      // expected-error@+1:7 {{a plan names a stage by its first result: write y, not generate}}
      rpeg.place "generate" on @rollout [#rpeg.record<par, {dp = 160 : i64, tp = 1 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = false, zero = 0 : i64, recompute = "none"}>, #rpeg.record<engine, {name = "vllm", memory = 9.000000e-01 : f64, max_seqs = 256 : i64}>]
    }
  }
}

// -----

// 44 place for an elementwise value
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.verifier @correct outcome("rule:math")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {n = 16 : i64, max_tokens = 8192 : i64}
      %r = rpeg.score %correct, %y
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @checkers #rpeg.record<cores, {nodes = [40 : i64, 63 : i64], per_node = 64 : i64}>
      // expected-error@+1:7 {{`adv` needs no place: it runs with the stage that reads it}}
      rpeg.place "adv" on @checkers []
    }
  }
}

// -----

// 45 streaming into a batch operation
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean", minibatches = 4 : i64}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @rollout #rpeg.record<nodes, {which = [0 : i64, 39 : i64]}>
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 63 : i64]}>
      // expected-error@+1:7 {{update works on a whole batch: `actor` can't start on groups}}
      rpeg.place "actor" on @trainer [#rpeg.record<par, {dp = 48 : i64, tp = 2 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 1 : i64, recompute = "selective", order = ["tp", "dp"]}>, #rpeg.record<mb, {tokens = 16384 : i64}>, #rpeg.record<stream, {source = "y", groups = 1 : i64}>, #rpeg.record<publish, {to = "rollout", mode = "relay", overlap = true, bucket = #rpeg.bytes<536870912>}>]
    }
  }
}

// -----

// 46 streaming through a whole-batch operation
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.verifier @correct outcome("rule:math")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %actor_1 = rpeg.stale %actor {low = 0 : i64, high = 2 : i64}
      %y, %lp = rpeg.generate %actor_1, %q {n = 16 : i64, max_tokens = 8192 : i64}
      %r = rpeg.score %correct, %y
      %raw = rpeg.group_advantage %r {baseline = "mean", scale = "none"}
      %adv = rpeg.whiten %raw
      %prox = rpeg.logprob %actor, %y
      %w = rpeg.importance %prox, %lp
      %pg = rpeg.loss.ppo_clip %y, %adv, %prox, %w {clip_low = 2.000000e-01 : f64, clip_high = 2.800000e-01 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @rollout #rpeg.record<nodes, {which = [0 : i64, 39 : i64]}>
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 63 : i64]}>
      // expected-error@+1:7 {{whiten (line 446, on the way from `y`) works on a whole batch: `actor` can't start on groups}}
      rpeg.place "actor" on @trainer [#rpeg.record<par, {dp = 48 : i64, tp = 2 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 1 : i64, recompute = "selective", order = ["tp", "dp"]}>, #rpeg.record<mb, {tokens = 16384 : i64}>, #rpeg.record<stream, {source = "y", groups = 1 : i64}>, #rpeg.record<publish, {to = "rollout", mode = "relay", overlap = true, bucket = #rpeg.bytes<536870912>}>]
    }
  }
}

// -----

// 47 publish forgotten
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      rpeg.pool @rollout #rpeg.record<nodes, {which = [0 : i64, 39 : i64]}>
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 63 : i64]}>
      rpeg.place "y" on @rollout [#rpeg.record<par, {dp = 160 : i64, tp = 1 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = false, zero = 0 : i64, recompute = "none"}>, #rpeg.record<engine, {name = "vllm", memory = 9.000000e-01 : f64, max_seqs = 256 : i64}>]
      // expected-error@+1:7 {{the new weights of `actor` never reach `y` in pool `rollout`: add publish(rollout, mode=...) to this line}}
      rpeg.place "actor" on @trainer [#rpeg.record<par, {dp = 48 : i64, tp = 2 : i64, pp = 1 : i64, cp = 1 : i64, ep = 1 : i64, vpp = 1 : i64, sp = true, zero = 1 : i64, recompute = "selective", order = ["tp", "dp"]}>, #rpeg.record<mb, {tokens = 16384 : i64}>]
    }
  }
}

// -----

// 48 nodes past the end
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 8192 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
    rpeg.plan @alps64 on "alps-64" {
      // expected-error@+1:47 {{40..64: the cluster has nodes 0..63}}
      rpeg.pool @trainer #rpeg.record<nodes, {which = [40 : i64, 64 : i64]}>
    }
  }
}

// -----

// 49 window wider than the correction
builtin.module {
  rpeg.pipeline @async_grpo {
    rpeg.model @actor policy("hf:Qwen/Qwen2.5-7B") {optim = #rpeg.record<adamw, {lr = 1.000000e-06 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 1.000000e-02 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
    rpeg.verifier @correct outcome("rule:math")
    rpeg.step i < 1000 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 384 : i64}
      %actor_1 = rpeg.stale %actor {low = 0 : i64, high = 12 : i64}
      %y, %lp = rpeg.generate %actor_1, %q {n = 16 : i64, max_tokens = 8192 : i64}
      %r = rpeg.score %correct, %y
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      %prox = rpeg.logprob %actor, %y
      %w = rpeg.importance %prox, %lp
      // expected-error@+1:7 {{`y` may be 12 versions old, a weighted ppo_clip covers 8: narrow the window to actor@[i-8..i]}}
      %pg = rpeg.loss.ppo_clip %y, %adv, %prox, %w {clip_low = 2.000000e-01 : f64, clip_high = 2.800000e-01 : f64}
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-03 : f64}
      %actor_2, %actor_opt_1 = rpeg.update %actor, %actor_opt, %pg, %kl {agg = "token_mean"}
      rpeg.yield %actor_2, %actor_opt, %train
    }
  }
}

// -----

// 50 training on a cut distribution
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2") {optim = #rpeg.record<adamw, {lr = 3.000000e-04 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    rpeg.verifier @correct outcome("gym:countdown")
    rpeg.verifier @tagged outcome("rule:answer_tag")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %correct = rpeg.get @correct : !rpeg.verifier<@correct, outcome>
      %tagged = rpeg.get @tagged : !rpeg.verifier<@tagged, outcome>
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {n = 8 : i64, max_tokens = 64 : i64, top_p = 9.000000e-01 : f64}
      %acc = rpeg.score %correct, %y
      %fmt = rpeg.score %tagged, %y
      %r = rpeg.weighted_sum %acc, %fmt {weights = [1.000000e+00 : f64, 1.000000e-01 : f64]}
      %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
      %lp_ref = rpeg.logprob %ref, %y
      // expected-error@+1:32 {{`y` is sampled from a cut distribution: a policy loss needs top_p=1.0 and temperature > 0}}
      %pg = rpeg.loss.ppo_clip %y, %adv, %lp {clip_low = 2.000000e-01 : f64, clip_high = 2.000000e-01 : f64}
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}

// -----

// 51 user code in a source
builtin.module {
  rpeg.pipeline @countdown_grpo {
    rpeg.model @actor policy("models/tiny-qwen2") {optim = #rpeg.record<adamw, {lr = 3.000000e-04 : f64, beta1 = 9.000000e-01 : f64, beta2 = 9.990000e-01 : f64, weight_decay = 0.000000e+00 : f64, grad_clip = 1.000000e+00 : f64, warmup = 0 : i64, schedule = "constant"}>}
    rpeg.model @ref policy(@actor)
    rpeg.data @train prompts("gym:countdown")
    // expected-error@+1:5 {{`py:` is not a known source; known: hf, gym, rule, python, run; a path has no scheme}}
    rpeg.verifier @tagged outcome("py:my_rewards:tagged")
    rpeg.step i < 300 (%actor: !rpeg.weights<@actor, policy>, %actor_opt: !rpeg.opt<@actor>, %train: !rpeg.cursor<@train, prompts>) {
      %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
      %q, %train_1 = rpeg.batch %train {size = 64 : i64}
      %y, %lp = rpeg.generate %actor, %q {max_tokens = 64 : i64}
      %lp_ref = rpeg.logprob %ref, %y
      %kl = rpeg.loss.kl %y, %lp_ref {coef = 1.000000e-02 : f64}
      %actor_1, %actor_opt_1 = rpeg.update %actor, %actor_opt, %kl {agg = "token_mean"}
      rpeg.yield %actor_1, %actor_opt, %train
    }
  }
}
