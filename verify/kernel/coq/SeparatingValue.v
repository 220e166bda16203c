(* Count01 by the documents' weights (claim D-1): for which strings of digits they are right, without computation.

   "=" weighs a 1 e times a 0, and compares what it finds with the separating value a. That is right for every n0 and n1
   exactly as long as the number of 2s is below a threshold: documents_answer, documents_fail. *)

From Coq Require Import Reals List Arith ZArith Lia Lra.
From Weightproof Require Import Model Queries Exponentials Count01.
Import ListNotations.
Open Scope R_scope.

(* The value that "=" finds where there are as many 0s as 1s and nothing else. *)
Definition separating_value (N : R) : R := N + exp 1 / (1 + exp 1).

(* The weights of constructions/count01.py:documents, for a real N, with the exact a. *)
Definition documents (N : R) : scalar_model := {|
  e := fun t => match t with Zero => N | One => N + 1 | Equals => 1 | Four => N * N | Five => N * N | _ => 0 end;
  W_out := fun t => match t with Four => 1 | Five => -1 | EOS => 4 | _ => 0 end;
  b_out := fun t => match t with
    | Four => - (separating_value N + 1) | Five => separating_value N + 1 | EOS => -12 * (N + 1) | _ => 0 end
|}.

Definition twos (x : list token) : nat := count_occ token_eq x Two.

(* The 2s that are too many. *)
Definition noise (N : R) : R := (exp (N + 1) / (1 + exp 1) + exp 1) / separating_value N - 1 - exp 1.

(* ---- At "=" ------------------------------------------------------------------------------------------------------------- *)

(* A sum over a string of digits goes by their numbers. *)
Lemma total_of_digits (f : token -> R) (x : list token) : is_string x ->
  total (map f x) = INR (zeros x) * f Zero + INR (ones x) * f One + INR (twos x) * f Two.
Proof.
  unfold zeros, ones, twos. induction x as [|t x IH]; intros H; [cbn; lra|]. cbn [map total fold_right].
  fold (total (map f x)). rewrite IH by (intros s Hs; apply H; now right).
  destruct (H t (or_introl eq_refl)) as [->|[->| ->]]; cbn [count_occ];
    repeat (destruct (token_eq _ _); try discriminate; try congruence); rewrite ?S_INR; lra.
Qed.

Section Documents.
Variable N : R.
Hypothesis N_at_least_5 : 5 <= N.

Let m := documents N.
Let a := separating_value N.

Lemma e_is_between : 2 < exp 1 <= 3.
Proof. split; [pose proof (exp_ineq1 1 ltac:(lra)); lra|exact exp_le_3]. Qed.

Lemma separating_value_is_between : N < a < N + 1.
Proof.
  unfold a, separating_value. pose proof e_is_between.
  assert (0 < exp 1 / (1 + exp 1)) by (apply Rdiv_lt_0_compat; lra).
  assert (exp 1 / (1 + exp 1) < 1) by (apply (Rmult_lt_reg_r (1 + exp 1)); [lra|]; unfold Rdiv; rewrite Rmult_assoc, Rinv_l; lra).
  lra.
Qed.

(* The sum of the weights at "=", and which side of a the average lies on. *)
Definition normaliser_at_equals (x : list token) : R :=
  1 + INR (zeros x) * exp N + INR (ones x) * exp (N + 1) + INR (twos x) + exp 1.
Definition decision (x : list token) : R :=
  (INR (ones x) - INR (zeros x)) * (exp (N + 1) / (1 + exp 1)) - a * (1 + INR (twos x) + exp 1) + exp 1.

Lemma normaliser_at_equals_positive (x : list token) : 0 < normaliser_at_equals x.
Proof.
  unfold normaliser_at_equals. pose proof (exp_pos N). pose proof (exp_pos (N + 1)). pose proof (exp_pos 1).
  pose proof (pos_INR (zeros x)). pose proof (pos_INR (ones x)). pose proof (pos_INR (twos x)). nra.
Qed.

Lemma stream_is_decided (x : list token) : is_string x ->
  (stream m (prompt x) Equals - 1 - a) * normaliser_at_equals x = decision x.
Proof.
  intros H. pose proof (normaliser_at_equals_positive x) as HD. pose proof e_is_between as He.
  assert (Hw : forall f : token -> R, total (map f (prompt x)) =
    f BOS + (INR (zeros x) * f Zero + INR (ones x) * f One + INR (twos x) * f Two) + f Equals).
  { intros f. unfold prompt. cbn [map total fold_right]. fold (total (map f (x ++ [Equals]))).
    rewrite map_app, total_app, (total_of_digits f x H). cbn [map total fold_right]. lra. }
  unfold stream. rewrite !Hw. unfold weight. cbn [e m documents]. rewrite !Rmult_1_l, !Rmult_0_r, !exp_0, !Rmult_1_r.
  fold (normaliser_at_equals x).
  replace (1 + (INR (zeros x) * exp N + INR (ones x) * exp (N + 1) + INR (twos x)) + exp 1)
    with (normaliser_at_equals x) by (unfold normaliser_at_equals; lra).
  set (D := normaliser_at_equals x) in *.
  match goal with |- (1 + ?num / D - 1 - a) * D = _ => replace ((1 + num / D - 1 - a) * D) with (num - a * D) by (field; lra) end.
  unfold decision, D, normaliser_at_equals, a, separating_value. rewrite exp_plus. field. lra.
Qed.

(* An average of embeddings is at most N + 1. *)
Lemma stream_is_below (x : list token) : is_string x -> stream m (prompt x) Equals <= N + 2.
Proof.
  intros H. pose proof (normaliser_at_equals_positive x) as HD. pose proof (stream_is_decided x H) as Hs.
  pose proof separating_value_is_between as Ha. pose proof e_is_between as He.
  enough (stream m (prompt x) Equals - 1 - a <= N + 1 - a) by lra.
  apply (Rmult_le_reg_r (normaliser_at_equals x)); [exact HD|]. rewrite Hs.
  unfold decision, normaliser_at_equals, a, separating_value in *. rewrite exp_plus.
  set (E := exp N). set (c := exp 1) in *. assert (HE : 0 < E) by apply exp_pos.
  pose proof (pos_INR (zeros x)). pose proof (pos_INR (ones x)). pose proof (pos_INR (twos x)).
  replace ((INR (ones x) - INR (zeros x)) * (E * c / (1 + c))) with ((INR (ones x) - INR (zeros x)) * E * (c / (1 + c))) by (field; lra).
  assert (Hq : c / (1 + c) * (1 + c) = c) by (field; lra). set (q := c / (1 + c)) in *.
  assert (0 <= INR (zeros x) * E) by (apply Rmult_le_pos; lra).
  assert (0 <= INR (ones x) * E) by (apply Rmult_le_pos; lra). nra.
Qed.

(* ---- After the answer ------------------------------------------------------------------------------------------------------ *)

Lemma stream_after_the_answer (x : list token) (last : token) : x <> [] -> e m last = N * N -> N * N <= stream m x last.
Proof.
  intros Hx He. unfold stream. rewrite He.
  assert (H : forall y, 0 <= total (map (fun t => weight m last t * e m t) y)
    /\ 0 <= total (map (weight m last) y) /\ (y <> [] -> 0 < total (map (weight m last) y))).
  { induction y as [|t y (IH1 & IH2 & _)]; [cbn; split; [lra|split; [lra|congruence]]|].
    cbn [map total fold_right]. fold (total (map (weight m last) y)). fold (total (map (fun s => weight m last s * e m s) y)).
    assert (Hw : 0 < weight m last t) by apply exp_pos.
    assert (Ht : 0 <= e m t) by (destruct t; cbn; nra).
    split; [|split; [lra|intros _; lra]]. nra. }
  destruct (H x) as (H1 & _ & H2). specialize (H2 Hx).
  assert (0 <= total (map (fun t => weight m last t * e m t) x) / total (map (weight m last) x)); [|lra].
  apply (Rmult_le_reg_r (total (map (weight m last) x))); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

Lemma eos_follows (x : list token) (last c : token) : x <> [] -> e m last = N * N -> c <> EOS ->
  logit m x last c < logit m x last EOS.
Proof.
  intros Hx He Hc. pose proof (stream_after_the_answer x last Hx He) as H. pose proof separating_value_is_between as Ha.
  fold a in Ha. unfold logit. destruct c; cbn [W_out b_out m documents]; fold a; try congruence; nra.
Qed.

(* ---- The theorem ---------------------------------------------------------------------------------------------------------------- *)

(* Whatever n0 and n1 are: right as long as there are few 2s; where there are not more 1s than 0s, with any number of them. *)
Theorem documents_answer (x : list token) : is_string x ->
  (ones x <= zeros x)%nat \/ INR (twos x) < noise N -> answers m x.
Proof.
  intros Hx Hn. pose proof (normaliser_at_equals_positive x) as HD. pose proof (stream_is_decided x Hx) as Hs.
  pose proof (stream_is_below x Hx) as Hbelow. pose proof separating_value_is_between as Ha. fold a in Ha.
  pose proof e_is_between as He. pose proof (pos_INR (twos x)) as Htwos.
  assert (Hg : 0 < exp (N + 1) / (1 + exp 1)) by (apply Rdiv_lt_0_compat; [apply exp_pos|lra]).
  split.
  - intros c Hc. unfold logit. set (r := stream m (prompt x) Equals) in *.
    assert (Hside : if (zeros x <? ones x)%nat then 0 < r - 1 - a else r - 1 - a < 0).
    { destruct (Nat.ltb_spec (zeros x) (ones x)) as [Hlt|Hge]; apply (Rmult_lt_reg_r (normaliser_at_equals x));
        try exact HD; rewrite Hs, Rmult_0_l; unfold decision.
      - destruct Hn as [Hn|Hn]; [lia|]. apply le_INR in Hlt. rewrite S_INR in Hlt.
        assert (Hn' : (1 + INR (twos x) + exp 1) * a < exp (N + 1) / (1 + exp 1) + exp 1).
        { apply (Rmult_lt_reg_r (/ a)); [apply Rinv_0_lt_compat; lra|]. rewrite Rmult_assoc, Rinv_r by lra.
          unfold noise in Hn. fold a in Hn. unfold Rdiv in *. lra. }
        nra.
      - apply le_INR in Hge. nra. }
    unfold due in *. destruct (zeros x <? ones x)%nat; destruct c; cbn [W_out b_out m documents]; fold a; try congruence; lra.
  - intros c Hc. apply eos_follows; [discriminate| |assumption]. unfold due. now destruct (_ <? _)%nat.
Qed.

(* And no further: with one 1 more than 0s, and that many 2s or more, the answer is wrong. *)
Lemma documents_fail_here (x : list token) : is_string x ->
  ones x = S (zeros x) -> noise N <= INR (twos x) -> ~ answers m x.
Proof.
  intros Hx Hone Hn [Hanswer _]. pose proof (normaliser_at_equals_positive x) as HD. pose proof (stream_is_decided x Hx) as Hs.
  pose proof separating_value_is_between as Ha. fold a in Ha. unfold due in Hanswer.
  destruct (Nat.ltb_spec (zeros x) (ones x)) as [_|Hge]; [|lia].
  specialize (Hanswer BOS ltac:(discriminate)). unfold logit in Hanswer. cbn [W_out b_out m documents] in Hanswer. fold a in Hanswer.
  assert (Hpos : 0 < decision x) by (rewrite <- Hs; apply Rmult_lt_0_compat; lra).
  unfold decision in Hpos. rewrite Hone, S_INR in Hpos.
  assert (Hn' : exp (N + 1) / (1 + exp 1) + exp 1 <= (1 + INR (twos x) + exp 1) * a).
  { apply (Rmult_le_reg_r (/ a)); [apply Rinv_0_lt_compat; lra|]. rewrite Rmult_assoc, Rinv_r by lra.
    unfold noise in Hn. fold a in Hn. unfold Rdiv in *. lra. }
  lra.
Qed.

Lemma count_occ_repeat (t u : token) (n : nat) : count_occ token_eq (repeat t n) u = if token_eq t u then n else 0%nat.
Proof.
  induction n as [|n IH]; cbn [repeat count_occ]; [now destruct (token_eq t u)|]. rewrite IH. now destruct (token_eq t u).
Qed.

(* So for every n0, and every number of 2s that reaches the threshold, there is a string that is answered wrongly. *)
Theorem documents_fail (n0 n2 : nat) : noise N <= INR n2 ->
  exists x, is_string x /\ zeros x = n0 /\ ones x = S n0 /\ twos x = n2 /\ ~ answers m x.
Proof.
  intros Hn. set (x := repeat Zero n0 ++ repeat One (S n0) ++ repeat Two n2).
  assert (Hx : is_string x).
  { intros t Ht. unfold x in Ht. rewrite !in_app_iff in Ht. unfold is_digit.
    destruct Ht as [Ht|[Ht|Ht]]; apply repeat_spec in Ht; auto. }
  assert (Hall : zeros x = n0 /\ ones x = S n0 /\ twos x = n2).
  { unfold zeros, ones, twos, x. rewrite !count_occ_app, !count_occ_repeat.
    repeat split; repeat (destruct (token_eq _ _); try discriminate; try congruence); lia. }
  exists x. destruct Hall as (H0 & H1 & H2). repeat split; try assumption.
  apply documents_fail_here; [exact Hx|congruence|now rewrite H2].
Qed.
End Documents.

(* ---- How many 2s that is ----------------------------------------------------------------------------------------------- *)

(* Integers around 2^100 / e^n. *)
Definition inverse_exp (n : Z) : bracket := exp_bracket (F.PtoP 120) 100 (divisor (F.PtoP 120) 1 1) (- n).

Lemma inverse_exp_is_around (n : Z) : (0 <= n)%Z -> around (inverse_exp n) (exp (- IZR n) * IZR (2 ^ 100)).
Proof.
  intros Hn. pose proof (exp_bracket_is_around (F.PtoP 120) 100 1 1 (- n)) as H.
  rewrite sqrt_1, Rmult_1_l, opp_IZR in H. unfold Rdiv in H. rewrite Rinv_1, Rmult_1_r in H. apply H; lia.
Qed.

(* e^n lies between two decimal fractions that the bracket confirms. *)
Lemma exp_is_between (n low high den : Z) : (0 <= n)%Z -> (0 < low)%Z -> (0 < den)%Z ->
  (low * snd (inverse_exp n) <= den * 2 ^ 100)%Z -> (den * 2 ^ 100 <= high * fst (inverse_exp n))%Z -> (0 < high)%Z ->
  IZR low / IZR den <= exp (IZR n) <= IZR high / IZR den.
Proof.
  intros Hn Hlow Hden Hl Hh Hhigh. destruct (inverse_exp_is_around n Hn) as [H1 H2].
  rewrite exp_Ropp in H1, H2. pose proof (exp_pos (IZR n)) as He.
  assert (HP : 0 < IZR (2 ^ 100)) by (apply IZR_lt; reflexivity).
  apply IZR_le in Hl, Hh. apply IZR_lt in Hlow, Hden, Hhigh. rewrite !mult_IZR in Hl, Hh.
  set (P := IZR (2 ^ 100)) in *. set (y := exp (IZR n)) in *.
  assert (Hy : / y * P * y = P) by (field; lra). set (w := / y * P) in *.
  split; apply (Rmult_le_reg_r (IZR den)); try assumption; unfold Rdiv; rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  - assert (H : IZR low * w <= IZR den * P) by (apply Rle_trans with (2 := Hl); now apply Rmult_le_compat_l; [lra|]).
    apply (Rmult_le_compat_r y) in H; [|lra]. rewrite Rmult_assoc, Hy in H.
    apply (Rmult_le_reg_r P); [assumption|]. lra.
  - assert (H : IZR den * P <= IZR high * w) by (apply Rle_trans with (1 := Hh); now apply Rmult_le_compat_l; [lra|]).
    apply (Rmult_le_compat_r y) in H; [|lra]. rewrite (Rmult_assoc (IZR high)), Hy in H.
    apply (Rmult_le_reg_r P); [assumption|]. lra.
Qed.

(* k is the last number of 2s below the threshold. *)
Definition last_right (N k : Z) : Prop := IZR k < noise (IZR N) < IZR (k + 1).

Lemma last_right_by_brackets (N k : Z) (c0 c1 E0 E1 : R) : (5 <= N)%Z -> (0 <= k)%Z -> 0 < c0 ->
  c0 <= exp 1 <= c1 -> E0 <= exp (IZR (N + 1)) <= E1 ->
  (IZR k + 1 + c1) * (IZR N * (1 + c1) + c1) < E0 + c0 * (1 + c0) ->
  E1 + c1 * (1 + c1) < (IZR k + 2 + c0) * (IZR N * (1 + c0) + c0) -> last_right N k.
Proof.
  intros HN Hk Hc0. apply IZR_le in HN, Hk. rewrite plus_IZR. unfold last_right, noise, separating_value.
  rewrite plus_IZR. set (c := exp 1) in *. set (E := exp (IZR N + 1)). intros [Hc Hc'] [HE HE'] H1 H2.
  assert (Hq : 0 < IZR N * (1 + c) + c) by nra. set (q := IZR N * (1 + c) + c) in *.
  assert (Heq : forall v, (E / (1 + c) + c) / (IZR N + c / (1 + c)) - 1 - c - v = (E + c * (1 + c) - (v + 1 + c) * q) / q)
    by (intros v; unfold q; field; split; nra).
  assert (Hup : forall v y, 0 <= v -> c <= y -> (v + c) * q <= (v + y) * (IZR N * (1 + y) + y)).
  { intros v y Hv Hy. unfold q. apply Rmult_le_compat; nra. }
  assert (Hdown : forall v y, 0 <= v -> 0 < y -> y <= c -> (v + y) * (IZR N * (1 + y) + y) <= (v + c) * q).
  { intros v y Hv Hy0 Hy. unfold q. apply Rmult_le_compat; nra. }
  specialize (Hup (IZR k + 1) c1 ltac:(lra) Hc'). specialize (Hdown (IZR k + 2) c0 ltac:(lra) Hc0 Hc).
  assert (c0 * (1 + c0) <= c * (1 + c)) by nra. assert (c * (1 + c) <= c1 * (1 + c1)) by nra.
  split.
  - specialize (Heq (IZR k)). enough (0 < (E + c * (1 + c) - (IZR k + 1 + c) * q) / q) by lra. apply Rdiv_lt_0_compat; lra.
  - specialize (Heq (IZR k + 1)). enough (0 < - (E + c * (1 + c) - (IZR k + 1 + 1 + c) * q) / q) by (unfold Rdiv in *; lra).
    apply Rdiv_lt_0_compat; [|lra]. replace (IZR k + 1 + 1 + c) with (IZR k + 2 + c) by lra. lra.
Qed.

Ltac by_decimals n low high den :=
  apply (exp_is_between n low high den); try lia; vm_compute; congruence.

(* e to 14 digits is enough for these. *)
Ltac last_right_by n low high den :=
  refine (last_right_by_brackets _ _ (271828182845904 / 100000000000000) (271828182845905 / 100000000000000)
    (IZR low / IZR den) (IZR high / IZR den) _ _ _ _ _ _ _);
  [lia|lia|lra|by_decimals 1%Z 271828182845904%Z 271828182845905%Z 100000000000000%Z|by_decimals n low high den|lra|lra].

Theorem last_right_10 : last_right 10 1497.
Proof. last_right_by 11%Z 598741417%Z 598741418%Z 10000%Z. Qed.

Theorem last_right_15 : last_right 15 151915.
Proof. last_right_by 16%Z 88861105205%Z 88861105206%Z 10000%Z. Qed.

Theorem last_right_20 : last_right 20 17108827.
Proof. last_right_by 21%Z 131881573448321%Z 131881573448322%Z 100000%Z. Qed.

(* Claim D-1: for integers N >= 5 the weights are right for all n0 and n1 with up to k 2s, and for no n0 with more. *)
Theorem documents_solve (N k : Z) : (5 <= N)%Z -> last_right N k ->
  (forall x, is_string x -> (Z.of_nat (twos x) <= k)%Z -> answers (documents (IZR N)) x) /\
  (forall n0 n2, (k < Z.of_nat n2)%Z ->
     exists x, is_string x /\ zeros x = n0 /\ ones x = S n0 /\ twos x = n2 /\ ~ answers (documents (IZR N)) x).
Proof.
  intros HN [H1 H2]. apply IZR_le in HN. split.
  - intros x Hx Htwos. apply documents_answer; [exact HN|exact Hx|]. right. rewrite INR_IZR_INZ. apply IZR_le in Htwos. lra.
  - intros n0 n2 Hn. apply documents_fail; [exact HN|]. rewrite INR_IZR_INZ.
    assert (Hn' : (k + 1 <= Z.of_nat n2)%Z) by lia. apply IZR_le in Hn'. lra.
Qed.
