// RUN: %rpeg-opt %s -t rpeg | filecheck %s
// From MLIR to text.

// CHECK: rpeg 0.1
// CHECK: pipeline p {
// CHECK-NEXT:   model actor = policy("x")
// CHECK-NEXT:   data train = prompts("y")
rpeg.pipeline @p {
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  // CHECK: step i < 3 {
  // CHECK-NEXT: q = batch(train, size=4)
  // CHECK-NEXT: y, generate = generate(actor@i-1, q, max_tokens=8)
  // CHECK-NEXT: every(steps=2) {
  // CHECK-NEXT:   q2 = batch(train, size=2)
  // CHECK-NEXT: }
  // CHECK-NEXT: }
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>, %train : !rpeg.cursor<@train, prompts>) {
    %q, %train_1 = rpeg.batch %train {size = 4}
    %old = rpeg.stale %actor {low = 1, high = 1}
    %y, %0 = rpeg.generate %old, %q {max_tokens = 8}
    %train_2 = rpeg.every %train_1 {steps = 2} {
      %q2, %train_3 = rpeg.batch %train_1 {size = 2}
      rpeg.yield %train_3
    }
    rpeg.yield %actor, %train_2
  }
}
