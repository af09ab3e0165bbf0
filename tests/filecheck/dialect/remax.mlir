// RUN: %roundtrip
// A greedy response to each prompt, and the rewards less its reward.

rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.verifier @good outcome("rule:exact_match")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {size = 4}
    %y, %lp = rpeg.generate %actor, %q {n = 2, max_tokens = 8}
    %y0, %lp0 = rpeg.generate %actor, %q {max_tokens = 8, temperature = 0.0}
    %r = rpeg.score %good, %y
    %r0 = rpeg.score %good, %y0
    // CHECK: %a = rpeg.remax_advantage %r, %r0
    %a = rpeg.remax_advantage %r, %r0
    rpeg.yield %actor, %train_1
  }
}
