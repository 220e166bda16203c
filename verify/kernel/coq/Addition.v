(* Addition, for all numbers of every size, without computation.

   staircase_adds (W-E4.4): one softmax head and two neurons in one dimension add modulo P with margin 1/2, for every P >= 2.
   columns_add (W-E4.1): one head and two neurons find every digit of the sum of two numbers with n digits in base B. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model Sums Pairs UniformAttention.
Import ListNotations.
Open Scope R_scope.

(* ---- Addition modulo P: uniform attention adds, two ReLUs subtract P, and the readout is a staircase ---------------------- *)
(* The stream after both ReLUs, where attention found z; and the logits. *)
Definition wrapped (P : nat) (z : R) : R := z - INR P * Rmax 0 (z - INR P + 1) + INR P * Rmax 0 (z - INR P).
Definition stair (P : nat) (z : R) (c : nat) : R := INR c * wrapped P z - INR c * INR c / 2.

(* Tokens a, b, "=" with embeddings 3 a, 3 b, 0, uniform attention over the three, and the skip connection. *)
Definition added (a b : nat) : R := 0 + (3 * INR a + 3 * INR b + 0) / 3.

Lemma wrapped_is_modulo (P a b : nat) : (a < P)%nat -> (b < P)%nat -> wrapped P (added a b) = INR ((a + b) mod P).
Proof.
  intros Ha Hb. unfold wrapped, added. replace (0 + (3 * INR a + 3 * INR b + 0) / 3) with (INR (a + b)) by (rewrite plus_INR; field).
  destruct (Nat.lt_ge_cases (a + b) P) as [Hlt|Hge].
  - rewrite Nat.mod_small by assumption. pose proof (le_INR _ _ Hlt) as H. rewrite S_INR in H.
    rewrite !Rmax_left by lra. lra.
  - replace ((a + b) mod P)%nat with (a + b - P)%nat.
    + rewrite minus_INR by assumption. pose proof (le_INR _ _ Hge). rewrite !Rmax_right by lra. lra.
    + rewrite <- (Nat.mod_small (a + b - P) P) by lia. replace (a + b)%nat with (a + b - P + 1 * P)%nat at 2 by lia.
      now rewrite Nat.mod_add by lia.
Qed.

Lemma stair_leads (P a b c : nat) : (a < P)%nat -> (b < P)%nat -> c <> ((a + b) mod P)%nat ->
  stair P (added a b) c + 1/2 <= stair P (added a b) ((a + b) mod P)%nat.
Proof.
  intros Ha Hb Hc. unfold stair. rewrite wrapped_is_modulo by assumption. set (r := ((a + b) mod P)%nat) in *.
  assert (H : 1 <= (INR r - INR c) * (INR r - INR c)).
  { destruct (Nat.lt_ge_cases c r) as [Hlt|Hge].
    - apply le_INR in Hlt. rewrite S_INR in Hlt. nra.
    - assert (Hlt : (r < c)%nat) by lia. apply le_INR in Hlt. rewrite S_INR in Hlt. nra. }
  nra.
Qed.

(* The weights of constructions/modular.py:staircase. *)
Definition staircase (P : nat) : pair_model := {|
  keeps_stream := true; modulus := P; width := 1; key_width := 1; value_width := 1; neurons := 2;
  tokens := map (fun t => [3 * INR t]) (seq 0 P) ++ [[0]];
  positions := [[0]; [0]; [0]];
  heads := [{| head_q := [[0]]; head_k := [[0]]; head_v := [[1]]; head_o := [[1]] |}];
  mlp_1 := [[1; 1]]; bias_1 := [1 - INR P; - INR P];
  mlp_2 := [[- INR P]; [INR P]];
  readout := [map INR (seq 0 P)]; bias_out := map (fun c => - (INR c * INR c / 2)) (seq 0 P)
|}.

Lemma staircase_embeds (P t i : nat) : (t < P)%nat -> (i < 3)%nat -> placed (staircase P) t i O = 3 * INR t.
Proof.
  intros Ht Hi. unfold placed, at2. cbn [tokens positions staircase].
  rewrite app_nth1 by now rewrite map_length, seq_length. rewrite nth_map_seq by assumption.
  destruct i as [|[|[|i]]]; cbn; lra || lia.
Qed.

Lemma staircase_own (P : nat) : own (staircase P) O = 0.
Proof.
  unfold own, placed, at2. cbn [tokens positions modulus staircase].
  rewrite app_nth2 by (rewrite map_length, seq_length; lia). rewrite map_length, seq_length, Nat.sub_diag. cbn. lra.
Qed.

Lemma staircase_stream (P a b : nat) : (a < P)%nat -> (b < P)%nat -> stream (staircase P) a b O = added a b.
Proof.
  intros Ha Hb. unfold stream. cbn [keeps_stream heads value_width map total fold_right staircase].
  unfold row_product. cbn [sum]. rewrite mixed_uniformly.
  - unfold row_product, keys_sum. cbn [sum width staircase]. rewrite !staircase_own, !staircase_embeds by lia.
    unfold at2, added. cbn. lra.
  - unfold pair_score, row_product, at2. cbn. lra.
  - unfold pair_score, row_product, at2. cbn. lra.
Qed.

Lemma staircase_logit (P a b c : nat) : (a < P)%nat -> (b < P)%nat -> (c < P)%nat ->
  pair_logit (staircase P) a b c = stair P (added a b) c.
Proof.
  intros Ha Hb Hc. unfold pair_logit, row_product. cbn [sum width staircase]. unfold last_stream, row_product.
  cbn [sum neurons keeps_stream staircase]. unfold neuron_value, row_product. cbn [sum width staircase].
  rewrite !staircase_stream by assumption. unfold at2, at1. cbn [mlp_1 mlp_2 bias_1 readout bias_out staircase nth].
  rewrite !nth_map_seq by assumption. unfold stair, wrapped.
  replace (0 + added a b * 1 + (1 - INR P)) with (added a b - INR P + 1) by lra.
  replace (0 + added a b * 1 + - INR P) with (added a b - INR P) by lra. lra.
Qed.

(* Claim W-E4.4: the right class leads every other one by at least 1/2, for every modulus. *)
Theorem staircase_adds (P : nat) : (2 <= P)%nat -> pair_shapes (staircase P) /\ adds_by (staircase P) (1/2).
Proof.
  intros HP. split.
  - unfold pair_shapes, head_shapes, shape2, shape1. cbn [tokens positions heads mlp_1 bias_1 mlp_2 readout bias_out modulus width
      key_width value_width neurons staircase].
    rewrite app_length, !map_length, seq_length. cbn [length].
    repeat split; try lia; repeat constructor; cbn; try lia; rewrite ?map_length, ?seq_length; try reflexivity.
    apply Forall_app. split; [|repeat constructor]. apply Forall_forall. intros row Hin.
    apply in_map_iff in Hin as [t [<- _]]. reflexivity.
  - intros a b Ha Hb c Hc Hne. cbn [modulus staircase] in *.
    rewrite !staircase_logit by (assumption || (apply Nat.mod_upper_bound; lia)). now apply stair_leads.
Qed.

(* ---- Numbers with n digits: the weights of constructions/addition.py:one_head, with exact logarithms ---------------- *)

(* A key of a softmax head: its score and its value. *)
Notation key := (R * R)%type.
Definition average (keys : list key) : R :=
  total (map (fun '(s, v) => exp s * v) keys) / total (map (fun '(s, _) => exp s) keys).

(* The number of the digits in columns 0, ..., k - 1. *)
Fixpoint value (B : nat) (d : nat -> nat) (k : nat) : nat :=
  match k with O => O | S j => (value B d j + d j * B ^ j)%nat end.

Lemma total_cons (a : R) (l : list R) : total (a :: l) = a + total l.
Proof. reflexivity. Qed.

Section Columns.
Variables B n : nat.

(* What the answer's column i looks at: the columns up to its own, of which there are n; column i - j weighs B^-j. *)
Definition seen (i : nat) : nat := Nat.min (S i) n.
Definition column_weight (i j : nat) : R := INR B ^ j / INR B ^ i.
Definition column_keys (d : nat -> nat) (i : nat) : list key :=
  map (fun j => (ln (column_weight i j), INR (d j))) (seq 0 (seen i)).

(* "+" has the digit 0 and takes the rest, so that all weights add up to 4. *)
Definition rest (i : nat) : R := 4 - 2 * sum (seen i) (column_weight i).

(* Both numbers' digits, "+", and all other keys: digits of higher columns, "=", answers. *)
Definition keys (d e : nat -> nat) (i : nat) (others : list key) : list key :=
  column_keys d i ++ column_keys e i ++ (ln (rest i), 0) :: others.

(* The stream; after two ReLUs, which subtract B from B on; and the logits. *)
Definition column_stream (d e : nat -> nat) (i : nat) (others : list key) : R := 4 * average (keys d e i others).
Definition below_B (z : R) : R :=
  z - INR B * Rmax 0 (INR B ^ n * z + (1 - INR B * INR B ^ n)) + INR B * Rmax 0 (INR B ^ n * z + - (INR B * INR B ^ n)).
Definition digit_logit (z : R) (c : nat) : R :=
  INR c * below_B z + (INR c * (-1/2 + 1 / (2 * INR B ^ n)) - INR c * INR c / 2).

(* Digit i of the sum. *)
Definition digit (d e : nat -> nat) (i : nat) : nat := ((value B d n + value B e n) / B ^ i mod B)%nat.

Hypothesis B_at_least_2 : (2 <= B)%nat.
Hypothesis n_at_least_1 : (1 <= n)%nat.

Lemma B_real : 2 <= INR B.
Proof. apply le_INR in B_at_least_2. simpl in B_at_least_2. lra. Qed.

Lemma power_positive (k : nat) : 0 < INR B ^ k.
Proof. apply pow_lt. pose proof B_real. lra. Qed.

(* ---- The integers: a column's cell is the sum of the columns up to it, and which carry leaves it ------------------------------ *)

Definition partial (d e : nat -> nat) (i : nat) : nat := (value B d (seen i) + value B e (seen i))%nat.

Lemma value_is_below (d : nat -> nat) (k : nat) : (forall j, (j < k)%nat -> (d j < B)%nat) -> (value B d k < B ^ k)%nat.
Proof.
  induction k as [|k IH]; intros H; [simpl; lia|]. cbn [value]. rewrite Nat.pow_succ_r'.
  specialize (IH ltac:(intros; apply H; lia)). specialize (H k ltac:(lia)).
  pose proof (Nat.mul_le_mono_r (S (d k)) B (B ^ k) H) as Hm. cbn [Nat.mul] in Hm. lia.
Qed.

Lemma value_continues (d : nat -> nat) (k m : nat) : exists q, value B d (k + m) = (value B d k + q * B ^ k)%nat.
Proof.
  induction m as [|m [q IH]]; [exists O; rewrite Nat.add_0_r; lia|]. rewrite Nat.add_succ_r. cbn [value]. rewrite IH, Nat.pow_add_r.
  exists (q + d (k + m) * B ^ m)%nat. lia.
Qed.

(* Columns above do not matter. *)
Lemma digit_of_partial (d e : nat -> nat) (i : nat) : (i <= n)%nat -> digit d e i = (partial d e i / B ^ i mod B)%nat.
Proof.
  intros Hi. unfold digit, partial, seen. assert (Hpow : (B ^ i <> 0)%nat) by (apply Nat.pow_nonzero; lia).
  destruct (Nat.le_gt_cases n i) as [Hle|Hgt]; [now rewrite Nat.min_r by lia|]. rewrite Nat.min_l by lia.
  destruct (value_continues d (S i) (n - S i)) as [q Hq]. destruct (value_continues e (S i) (n - S i)) as [r Hr].
  replace (S i + (n - S i))%nat with n in Hq, Hr by lia. rewrite Hq, Hr, Nat.pow_succ_r'.
  replace (value B d (S i) + q * (B * B ^ i) + (value B e (S i) + r * (B * B ^ i)))%nat
    with (value B d (S i) + value B e (S i) + ((q + r) * B) * B ^ i)%nat by ring.
  rewrite Nat.div_add by assumption. apply Nat.mod_add. lia.
Qed.

(* With a carry out of the column the partial sum is B^(i + 1) or more, else it ends two units of B^-n below. *)
Lemma partial_is_bounded (d e : nat -> nat) (i : nat) : (forall j, (j < n)%nat -> (d j < B /\ e j < B)%nat) -> (i <= n)%nat ->
  let V := partial d e i in
  (V < 2 * B ^ (1 + i) /\ (V < B ^ (1 + i) -> V * B ^ n + 2 * B ^ i <= B ^ (1 + i) * B ^ n))%nat.
Proof.
  intros H Hi. cbv zeta. unfold partial.
  assert (Hk : (seen i <= n)%nat) by (unfold seen; lia).
  pose proof (value_is_below d (seen i) ltac:(intros; apply H; lia)) as H1.
  pose proof (value_is_below e (seen i) ltac:(intros; apply H; lia)) as H2.
  assert (Hn : (0 < B ^ n)%nat) by (apply Nat.neq_0_lt_0, Nat.pow_nonzero; lia).
  unfold seen in *. destruct (Nat.le_gt_cases n i) as [Hle|Hgt].
  - assert (i = n) as -> by lia. rewrite !Nat.min_r in * by lia. cbn [Nat.add]. rewrite Nat.pow_succ_r'. nia.
  - rewrite !Nat.min_l in * by lia. cbn [Nat.add]. split; [lia|]. intros HS.
    assert (Hgap : (2 * B ^ i <= B ^ n)%nat).
    { replace n with (S i + (n - S i))%nat by lia. rewrite Nat.pow_add_r, Nat.pow_succ_r'.
      assert (0 < B ^ (n - S i))%nat by (apply Nat.neq_0_lt_0, Nat.pow_nonzero; lia).
      transitivity (B * B ^ i * 1)%nat; [rewrite Nat.mul_1_r; apply Nat.mul_le_mono_r; lia|apply Nat.mul_le_mono_l; lia]. }
    pose proof (Nat.mul_le_mono_r _ _ (B ^ n) HS) as Hm. cbn [Nat.mul] in Hm. lia.
Qed.

(* ---- Attention: the partial sum over B^i, off by what the other keys weigh ------------------------------------------------------ *)

Definition leak (others : list key) : R := total (map (fun '(s, _) => exp s) others).
Definition are_digits (others : list key) : Prop := forall s v, In (s, v) others -> 0 <= v <= INR B - 1.

Lemma leak_nonnegative (others : list key) : 0 <= leak others.
Proof.
  unfold leak. induction others as [|[s v] others IH]; [simpl; lra|]. pose proof (exp_pos s).
  change (0 <= exp s + total (map (fun '(s, _) => exp s) others)). lra.
Qed.

Lemma leaked_values (others : list key) : are_digits others ->
  0 <= total (map (fun '(s, v) => exp s * v) others) <= leak others * (INR B - 1).
Proof.
  unfold leak, are_digits. induction others as [|[s v] others IH]; intros H; [simpl; lra|].
  change (0 <= exp s * v + total (map (fun '(s, v) => exp s * v) others)
    <= (exp s + total (map (fun '(s, _) => exp s) others)) * (INR B - 1)).
  specialize (IH ltac:(intros s' v' Hin; apply (H s' v'); now right)). specialize (H s v ltac:(now left)).
  pose proof (exp_pos s) as He. pose proof (Rmult_le_compat_l (exp s) 0 v ltac:(lra) ltac:(lra)).
  pose proof (Rmult_le_compat_l (exp s) v (INR B - 1) ltac:(lra) ltac:(lra)). lra.
Qed.

Lemma column_weight_positive (i j : nat) : 0 < column_weight i j.
Proof. apply Rdiv_lt_0_compat; apply power_positive. Qed.

Lemma rest_positive (i : nat) : 0 < rest i.
Proof.
  unfold rest. pose proof B_real as HB. pose proof (power_positive i) as Hi.
  assert (H : forall k, sum k (column_weight i) * (INR B - 1) = (INR B ^ k - 1) / INR B ^ i).
  { intros k. induction k as [|k IH]; [cbn [sum pow]; field; lra|]. cbn [sum]. rewrite Rmult_plus_distr_r, IH. unfold column_weight. simpl. field. lra. }
  specialize (H (seen i)).
  assert (Hle : INR B ^ seen i <= INR B * INR B ^ i) by (change (INR B * INR B ^ i) with (INR B ^ S i); apply Rle_pow; [lra|unfold seen; lia]).
  assert (Hs : sum (seen i) (column_weight i) * (INR B - 1) < INR B).
  { rewrite H. apply (Rmult_lt_reg_r (INR B ^ i)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  nra.
Qed.

Lemma total_of_columns (g : R -> R -> R) (d : nat -> nat) (i : nat) :
  total (map (fun '(s, v) => g (exp s) v) (column_keys d i)) = sum (seen i) (fun j => g (column_weight i j) (INR (d j))).
Proof.
  unfold column_keys. rewrite map_map, <- total_seq. apply total_ext. intros j _. now rewrite exp_ln by apply column_weight_positive.
Qed.

Lemma value_as_sum (d : nat -> nat) (i k : nat) :
  sum k (fun j => column_weight i j * INR (d j)) = INR (value B d k) / INR B ^ i.
Proof.
  pose proof (power_positive i). induction k as [|k IH]; [cbn; field; lra|].
  cbn [sum value]. rewrite IH, plus_INR, mult_INR, pow_INR. unfold column_weight. field. lra.
Qed.

Lemma column_is_read (d e : nat -> nat) (i : nat) (others : list key) :
  (forall j, (j < n)%nat -> (d j < B /\ e j < B)%nat) -> (i <= n)%nat -> are_digits others ->
  Rabs (column_stream d e i others - INR (partial d e i) / INR B ^ i) <= INR B * leak others.
Proof.
  intros Hd Hi Hothers. pose proof B_real as HB. pose proof (leak_nonnegative others) as Hw.
  pose proof (leaked_values others Hothers) as Hl. pose proof (rest_positive i) as Hr.
  unfold column_stream, average, keys. rewrite !map_app, !total_app.
  rewrite !(total_of_columns (fun w v => w * v)), !(total_of_columns (fun w _ => w)).
  cbn [map]. rewrite !total_cons. fold (leak others). rewrite !value_as_sum, exp_ln, Rmult_0_r, Rplus_0_l by assumption.
  change (sum (seen i) (fun j => column_weight i j)) with (sum (seen i) (column_weight i)).
  set (U := INR (partial d e i) / INR B ^ i). set (l := total (map (fun '(s, v) => exp s * v) others)) in *. set (w := leak others) in *.
  assert (HU : INR (value B d (seen i)) / INR B ^ i + (INR (value B e (seen i)) / INR B ^ i + l) = U + l).
  { unfold U, partial. rewrite plus_INR. field. pose proof (power_positive i). lra. }
  assert (Hsum : sum (seen i) (column_weight i) + (sum (seen i) (column_weight i) + (rest i + w)) = 4 + w) by (unfold rest; lra).
  rewrite HU, Hsum. clear HU Hsum.
  assert (HU2 : 0 <= U <= 2 * INR B).
  { pose proof (power_positive i) as Hp. destruct (partial_is_bounded d e i Hd Hi) as [HS _]. unfold U. split.
    - apply Rmult_le_pos; [apply pos_INR|]. left. now apply Rinv_0_lt_compat.
    - apply (Rmult_le_reg_r (INR B ^ i)); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
      apply lt_INR in HS. rewrite mult_INR, pow_INR in HS. simpl in HS. lra. }
  replace (4 * ((U + l) / (4 + w)) - U) with ((4 * l - w * U) / (4 + w)) by (field; lra).
  apply Rabs_le. split; apply (Rmult_le_reg_r (4 + w)); try lra; unfold Rdiv; rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra; nra.
Qed.

(* ---- The readout of one cell -------------------------------------------------------------------------------------------------------- *)

(* Where the wrapped stream is y above the right digit. *)
Lemma readout_is_right (z y eps : R) (r c : nat) :
  below_B z = INR r + y -> 0 <= eps -> eps <= 1 / (2 * INR B ^ n) -> - eps <= y <= 1 - 1 / INR B ^ n + eps -> c <> r ->
  digit_logit z c + (1 / (2 * INR B ^ n) - eps) <= digit_logit z r.
Proof.
  intros Hz Heps Hsmall Hy Hc. unfold digit_logit. rewrite Hz.
  assert (Hhalf : 1 / INR B ^ n = 2 * (1 / (2 * INR B ^ n))) by (field; pose proof (power_positive n); lra).
  rewrite Hhalf in Hy. clear Hhalf. set (h := 1 / (2 * INR B ^ n)) in *.
  destruct (Nat.lt_ge_cases c r) as [Hlt|Hge].
  - apply le_INR in Hlt. rewrite S_INR in Hlt. set (k := INR r - INR c). assert (Hk : 1 <= k) by (unfold k; lra).
    replace (INR r) with (INR c + k) by (unfold k; lra). nra.
  - assert (Hgt : (r < c)%nat) by lia. apply le_INR in Hgt. rewrite S_INR in Hgt. set (k := INR c - INR r).
    assert (Hk : 1 <= k) by (unfold k; lra). replace (INR c) with (INR r + k) by (unfold k; lra). nra.
Qed.

Lemma cell_is_right (d e : nat -> nat) (i c : nat) (z eps : R) :
  (forall j, (j < n)%nat -> (d j < B /\ e j < B)%nat) -> (i <= n)%nat -> 0 <= eps -> eps * (1 + INR B * INR B ^ n) <= 1/2 ->
  Rabs (z - INR (partial d e i) / INR B ^ i) <= eps -> c <> digit d e i ->
  digit_logit z c + (1 / (2 * INR B ^ n) - eps) <= digit_logit z (digit d e i).
Proof.
  intros Hd Hi Heps Hsmall Hz Hc. pose proof B_real as HB. rewrite digit_of_partial in * by assumption.
  destruct (partial_is_bounded d e i Hd Hi) as [HS Hgap]. set (V := partial d e i) in *.
  pose proof (power_positive i) as Hpi. pose proof (power_positive n) as Hpn.
  assert (HG : INR B ^ i <= INR B ^ n) by (apply Rle_pow; [lra|lia]).
  assert (HG2 : 2 <= INR B ^ n).
  { apply Rle_trans with (INR B ^ 1); [simpl; lra|]. apply Rle_pow; [lra|lia]. }
  assert (Hpow : (B ^ i <> 0)%nat) by (apply Nat.pow_nonzero; lia).
  assert (Hmod := Nat.mod_upper_bound V (B ^ i) Hpow). assert (Hdiv := Nat.div_mod_eq V (B ^ i)).
  set (q := (V / B ^ i)%nat) in *. set (s := (V mod B ^ i)%nat) in *.
  assert (HU : INR V / INR B ^ i = INR q + INR s / INR B ^ i).
  { rewrite Hdiv, plus_INR, mult_INR, pow_INR. field. lra. }
  assert (Hf : 0 <= INR s / INR B ^ i <= 1 - 1 / INR B ^ n).
  { split; [apply Rmult_le_pos; [apply pos_INR|left; now apply Rinv_0_lt_compat]|].
    apply Rle_trans with (1 - 1 / INR B ^ i).
    - apply (Rmult_le_reg_r (INR B ^ i)); [assumption|]. replace ((1 - 1 / INR B ^ i) * INR B ^ i) with (INR B ^ i - 1) by (field; lra).
      unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. apply le_INR in Hmod. rewrite S_INR, pow_INR in Hmod. lra.
    - assert (/ INR B ^ n <= / INR B ^ i) by (now apply Rinv_le_contravar). unfold Rdiv. lra. }
  set (f := INR s / INR B ^ i) in *. rewrite HU in Hz.
  assert (Hz' : - eps <= z - (INR q + f) <= eps) by (revert Hz; unfold Rabs; destruct (Rcase_abs _); lra).
  clear Hz. rename Hz' into Hz.
  set (G := INR B ^ n) in *. assert (HGinv : 1 / G * G = 1) by (field; lra). set (g := 1 / G) in *.
  assert (Hhalf : 1 / (2 * G) = g / 2) by (unfold g; field; lra).
  assert (Hsmall1 : eps * G <= 1/4) by nra. assert (Hsmall2 : eps <= g / 2) by nra.
  cbn [Nat.add] in HS, Hgap. rewrite Nat.pow_succ_r' in HS, Hgap.
  destruct (Nat.lt_ge_cases V (B * B ^ i)) as [Hlt|Hge].
  - (* no carry leaves the column: neither ReLU is on *)
    assert (Hq : (q < B)%nat) by (apply Nat.div_lt_upper_bound; [assumption|lia]). rewrite Nat.mod_small in * by assumption.
    specialize (Hgap Hlt). apply le_INR in Hgap. rewrite plus_INR, !mult_INR, !pow_INR in Hgap. fold G in Hgap. cbn [INR] in Hgap.
    assert (Htop : (INR q + f) * G + 2 <= INR B * G).
    { rewrite <- HU. apply (Rmult_le_reg_r (INR B ^ i)); [assumption|].
      replace ((INR V / INR B ^ i * G + 2) * INR B ^ i) with (INR V * G + 2 * INR B ^ i) by (field; lra). lra. }
    apply (readout_is_right z (z - INR q) eps); fold G; fold g; rewrite ?Hhalf; try lra; try exact Hc.
    unfold below_B. fold G. rewrite !Rmax_left by nra. lra.
  - (* a carry leaves: both are on, or just not *)
    assert (Hq : (B <= q)%nat) by (apply Nat.div_le_lower_bound; [assumption|lia]).
    assert (Hq2 : (q < 2 * B)%nat) by (apply Nat.div_lt_upper_bound; [assumption|lia]).
    assert (Hr : (q mod B = q - B)%nat).
    { rewrite <- (Nat.mod_small (q - B) B) by lia. replace q with (q - B + 1 * B)%nat at 1 by lia. apply Nat.mod_add. lia. }
    rewrite Hr in *. assert (HqR : INR (q - B) = INR q - INR B) by (now rewrite minus_INR).
    apply le_INR in Hq as HqB.
    assert (Hg : 0 <= Rmax 0 (G * z + - (INR B * G)) /\ G * z + - (INR B * G) <= Rmax 0 (G * z + - (INR B * G)))
      by (split; [apply Rmax_l|apply Rmax_r]).
    assert (H1 : Rmax 0 (G * z + (1 - INR B * G)) = G * z + (1 - INR B * G)) by (apply Rmax_right; nra).
    destruct (Rle_lt_dec 0 (G * z + - (INR B * G))) as [Hon|Hoff].
    + apply (readout_is_right z (z - INR q) eps); fold G; fold g; rewrite ?Hhalf; try lra; try exact Hc.
      unfold below_B. fold G. rewrite H1, (Rmax_right 0 (G * z + - (INR B * G))), HqR by lra. lra.
    + (* only just above B: the stream is a little less than B *)
      assert (Hnear : INR q = INR B /\ f <= eps).
      { assert (Hzb : z < INR B) by nra.
        assert (INR q < INR B + 1) by nra. rewrite <- S_INR in H. apply INR_lt in H. assert (q = B) as HqE by lia.
        split; [now rewrite HqE|]. lra. }
      destruct Hnear as [HqB' Hfe].
      apply (readout_is_right z (z - INR q - INR B * (G * z - INR B * G)) eps); fold G; fold g; rewrite ?Hhalf; try lra; try exact Hc.
      * unfold below_B. fold G. rewrite H1, (Rmax_left 0 (G * z + - (INR B * G))), HqR by lra. ring.
      * assert (Hdown : - (eps * G) <= G * z - INR B * G <= 0) by nra.
        assert (0 <= - (INR B * (G * z - INR B * G)) <= INR B * (eps * G)) by nra. assert (g <= 1/2) by nra. split; nra.
Qed.

(* ---- The theorem --------------------------------------------------------------------------------------------------------------------- *)

(* A score that is as good as none, for up to `most` other keys. *)
Definition never (most : nat) : R := (INR n + 2) * ln (INR B) + ln (INR most) + 12.

Lemma little_leaks (most : nat) (others : list key) : (1 <= most)%nat -> (length others <= most)%nat ->
  (forall s v, In (s, v) others -> s <= - never most) -> INR B * leak others * (4096 * (INR B * INR B ^ n)) <= 1.
Proof.
  intros Hm Hlen H. pose proof B_real as HB. assert (HmR : 1 <= INR most) by (apply le_INR in Hm; exact Hm).
  assert (Hexp : exp (- never most) * INR most * (INR B * (INR B * INR B ^ n)) * 4096 <= 1).
  { unfold never. rewrite exp_Ropp, !exp_plus, (exp_ln (INR most)) by lra.
    replace (INR n + 2) with (INR (S (S n))) by (rewrite !S_INR; lra).
    assert (Hp : exp (INR (S (S n)) * ln (INR B)) = INR B * (INR B * INR B ^ n))
      by (change (exp (INR (S (S n)) * ln (INR B))) with (Rpower (INR B) (INR (S (S n)))); rewrite Rpower_pow by lra; reflexivity).
    rewrite Hp. pose proof (power_positive n) as HG. set (P := INR B * (INR B * INR B ^ n)).
    assert (HP : 0 < P) by (unfold P; repeat apply Rmult_lt_0_compat; lra).
    assert (H12 : 4096 <= exp 12).
    { replace 12 with (INR 12) by (simpl; lra). rewrite <- (Rmult_1_r (INR 12)). 
      assert (He : 2 <= exp 1) by (pose proof (exp_ineq1 1 ltac:(lra)); lra).
      replace (INR 12 * 1) with (1+1+1+1+1+1+1+1+1+1+1+1) by (simpl; lra). rewrite !exp_plus.
      assert (forall y k, 0 <= k -> k <= y -> k * 2 <= y * exp 1) by (intros; nra).
      replace 4096 with (2*2*2*2*2*2*2*2*2*2*2*2) by lra. repeat (apply H0; [lra|]). exact He. }
    replace (/ (P * INR most * exp 12) * INR most * P * 4096) with (4096 / exp 12) by (field; lra).
    apply (Rmult_le_reg_r (exp 12)); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (Hleak : leak others <= INR (length others) * exp (- never most)).
  { clear Hlen Hexp. unfold leak. induction others as [|[s v] others IH]; [simpl; lra|].
    change (exp s + total (map (fun '(s, _) => exp s) others) <= INR (S (length others)) * exp (- never most)). rewrite S_INR.
    specialize (IH ltac:(intros s' v' Hin; apply (H s' v'); now right)). specialize (H s v ltac:(now left)).
    assert (exp s <= exp (- never most)) by (destruct H as [H| ->]; [left; now apply exp_increasing|lra]). lra. }
  apply le_INR in Hlen. pose proof (exp_pos (- never most)) as He. pose proof (power_positive n) as HG.
  assert (Hle : leak others <= INR most * exp (- never most)) by nra.
  apply Rle_trans with (INR B * (INR most * exp (- never most)) * (4096 * (INR B * INR B ^ n))); [|lra].
  apply Rmult_le_compat_r; [|apply Rmult_le_compat_l; lra]. apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra.
Qed.

(* Claim W-E4.1: whatever the two numbers are, in every column the right digit of their sum has the largest logit, by
   nearly half a unit of B^-n, as long as the other keys' scores are low. *)
Theorem columns_add (d e : nat -> nat) (i c most : nat) (others : list key) :
  (forall j, (j < n)%nat -> (d j < B /\ e j < B)%nat) -> (i <= n)%nat ->
  (1 <= most)%nat -> (length others <= most)%nat -> are_digits others ->
  (forall s v, In (s, v) others -> s <= - never most) -> c <> digit d e i ->
  let z := column_stream d e i others in
  digit_logit z c + (1/2 - 1/4096) / INR B ^ n <= digit_logit z (digit d e i).
Proof.
  intros Hd Hi Hm Hlen Hvalues Hscores Hc z. pose proof B_real as HB. pose proof (power_positive n) as HG.
  pose proof (little_leaks most others Hm Hlen Hscores) as Hleak. pose proof (leak_nonnegative others) as Hw.
  assert (HG1 : 1 <= INR B ^ n) by (apply pow_R1_Rle; lra).
  set (eps := INR B * leak others) in *. assert (Heps : 0 <= eps) by (apply Rmult_le_pos; lra).
  assert (Hbig : 0 < INR B * INR B ^ n) by nra.
  pose proof (cell_is_right d e i c z eps Hd Hi Heps ltac:(nra) (column_is_read d e i others Hd Hi Hvalues) Hc) as H.
  assert (Hmargin : eps <= 1/4096 / INR B ^ n).
  { apply (Rmult_le_reg_r (INR B ^ n)); [assumption|]. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by lra. nra. }
  replace ((1/2 - 1/4096) / INR B ^ n) with (1 / (2 * INR B ^ n) - 1/4096 / INR B ^ n) by (field; lra). lra.
Qed.
End Columns.
