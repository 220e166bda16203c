(* Count01 by uniform attention, for all strings of digits, without computation.

   uniform_solves (W-10): the weights of constructions/count01.py:uniform answer every string of digits, then stop. *)

From Coq Require Import Reals List Arith Lia Lra.
From Weightproof Require Import Model.
Import ListNotations.
Open Scope R_scope.

(* ---- A Count01 model with d = 1, one head, and K = Q = V = O = 1: softmax attention and a skip connection ---------------- *)

Inductive token := BOS | Zero | One | Two | Equals | Four | Five | EOS.

Record scalar_model := { e : token -> R; W_out : token -> R; b_out : token -> R }.

(* What the token `last` at the end of the string x leaves in the stream, and its logits. *)
Definition weight (m : scalar_model) (last t : token) : R := exp (e m last * e m t).
Definition stream (m : scalar_model) (x : list token) (last : token) : R :=
  e m last + total (map (fun t => weight m last t * e m t) x) / total (map (weight m last) x).
Definition logit (m : scalar_model) (x : list token) (last : token) (c : token) : R :=
  stream m x last * W_out m c + b_out m c.

Definition token_eq (s t : token) : {s = t} + {s <> t}.
Proof. decide equality. Defined.

Definition is_digit (t : token) : Prop := t = Zero \/ t = One \/ t = Two.
Definition ones (x : list token) : nat := count_occ token_eq x One.
Definition zeros (x : list token) : nat := count_occ token_eq x Zero.
Definition prompt (x : list token) : list token := BOS :: x ++ [Equals].
Definition due (x : list token) : token := if (zeros x <? ones x)%nat then Four else Five.

(* The string is answered rightly after "=", and EOS follows the answer: each has strictly the largest logit. *)
Definition answers (m : scalar_model) (x : list token) : Prop :=
  (forall c, c <> due x -> logit m (prompt x) Equals c < logit m (prompt x) Equals (due x)) /\
  (forall c, c <> EOS -> logit m (prompt x ++ [due x]) (due x) c < logit m (prompt x ++ [due x]) (due x) EOS).

Definition is_string (x : list token) : Prop := forall t, In t x -> is_digit t.

(* Every string of digits is. *)
Definition solves (m : scalar_model) : Prop := forall x, is_string x -> answers m x.

Definition uniform : scalar_model := {|
  e := fun t => match t with BOS => -1/2 | Zero => -1 | One => 1 | Four => 4 | Five => 4 | _ => 0 end;
  W_out := fun t => match t with Four => 1 | Five => -1 | EOS => 4 | _ => 0 end;
  b_out := fun t => match t with EOS => -6 | _ => 0 end
|}.

Lemma total_app (a b : list R) : total (a ++ b) = total a + total b.
Proof. unfold total. induction a as [|v a IH]; simpl; [lra|]. rewrite IH. lra. Qed.

(* At "=" all weights are 1. *)
Lemma weight_at_equals (t : token) : weight uniform Equals t = 1.
Proof. unfold weight. cbn [e uniform]. now rewrite Rmult_0_l, exp_0. Qed.

Lemma weights_at_equals (x : list token) : total (map (weight uniform Equals) x) = INR (length x).
Proof.
  induction x as [|t x IH]; [reflexivity|]. cbn [map total fold_right length].
  fold (total (map (weight uniform Equals) x)). rewrite IH, weight_at_equals, S_INR. lra.
Qed.

Lemma digits_at_equals (x : list token) : (forall t, In t x -> is_digit t) ->
  total (map (fun t => weight uniform Equals t * e uniform t) x) = INR (ones x) - INR (zeros x).
Proof.
  induction x as [|t x IH]; intros H; [cbn; lra|]. cbn [map total fold_right].
  fold (total (map (fun s => weight uniform Equals s * e uniform s) x)).
  rewrite IH by (intros s Hs; apply H; now right). rewrite weight_at_equals. unfold ones, zeros.
  destruct (H t (or_introl eq_refl)) as [->|[->| ->]]; cbn [count_occ e uniform];
    destruct (token_eq _ One); destruct (token_eq _ Zero); try discriminate; try congruence; rewrite ?S_INR; lra.
Qed.

Lemma stream_at_equals (x : list token) : (forall t, In t x -> is_digit t) ->
  stream uniform (prompt x) Equals = (INR (ones x) - INR (zeros x) - 1/2) / (INR (length x) + 2).
Proof.
  intros H. unfold stream, prompt. rewrite weights_at_equals. cbn [map total fold_right].
  fold (total (map (fun t => weight uniform Equals t * e uniform t) (x ++ [Equals]))).
  rewrite map_app, total_app, digits_at_equals by assumption. rewrite !weight_at_equals.
  cbn [map total fold_right]. rewrite weight_at_equals. cbn [length]. rewrite app_length, S_INR, plus_INR. cbn [length e uniform INR].
  replace (INR (length x) + 1 + 1) with (INR (length x) + 2) by lra.
  unfold Rdiv. rewrite Rplus_0_l. f_equal. lra.
Qed.

Lemma counts_below_length (x : list token) : (ones x + zeros x <= length x)%nat.
Proof.
  unfold ones, zeros. induction x as [|t x IH]; cbn [count_occ length]; [lia|].
  destruct (token_eq t One), (token_eq t Zero); subst; try discriminate; lia.
Qed.

(* A mean of embeddings is at least -1, the least of them. *)
Lemma least_embedding (t : token) : -1 <= e uniform t.
Proof. destruct t; cbn; lra. Qed.

Lemma stream_after_answer (x : list token) (last : token) : x <> [] -> e uniform last = 4 -> 3 <= stream uniform x last.
Proof.
  intros Hx He. unfold stream. rewrite He.
  assert (H : forall y, - total (map (weight uniform last) y) <= total (map (fun t => weight uniform last t * e uniform t) y)
    /\ (y <> [] -> 0 < total (map (weight uniform last) y)) /\ 0 <= total (map (weight uniform last) y)).
  { induction y as [|t y (IH1 & _ & IH3)]; [cbn; split; [lra|split; [congruence|lra]]|].
    cbn [map total fold_right]. fold (total (map (weight uniform last) y)).
    fold (total (map (fun s => weight uniform last s * e uniform s) y)).
    assert (Hw : 0 < weight uniform last t) by apply exp_pos. pose proof (least_embedding t) as Ht.
    split; [|split; [intros _; lra|lra]]. nra. }
  destruct (H x) as (H1 & H2 & _). specialize (H2 Hx).
  assert (-1 <= total (map (fun t => weight uniform last t * e uniform t) x) / total (map (weight uniform last) x)); [|lra].
  apply (Rmult_le_reg_r (total (map (weight uniform last) x))); [assumption|]. unfold Rdiv.
  rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* Claim W-10: uniform attention solves Count01 for all n0, n1, n2. *)
Theorem uniform_solves : solves uniform.
Proof.
  intros x Hx. split.
  - intros c Hc. unfold logit. rewrite stream_at_equals by assumption.
    set (D := INR (length x) + 2). set (y := (INR (ones x) - INR (zeros x) - 1/2) / D).
    assert (HD : 0 < D) by (unfold D; pose proof (pos_INR (length x)); lra).
    assert (Hy : y * D = INR (ones x) - INR (zeros x) - 1/2) by (unfold y; field; lra).
    assert (Hone : y < 1).
    { apply (Rmult_lt_reg_r D); [assumption|]. rewrite Hy. unfold D. pose proof (counts_below_length x) as Hl.
      apply le_INR in Hl. rewrite plus_INR in Hl. pose proof (pos_INR (zeros x)). lra. }
    unfold due in *. destruct (Nat.ltb_spec (zeros x) (ones x)) as [Hlt|Hge].
    + assert (0 < y).
      { apply (Rmult_lt_reg_r D); [assumption|]. rewrite Hy. apply le_INR in Hlt. rewrite S_INR in Hlt. lra. }
      destruct c; cbn [W_out b_out uniform]; try lra; congruence.
    + assert (y < 0).
      { apply (Rmult_lt_reg_r D); [assumption|]. rewrite Hy. apply le_INR in Hge. lra. }
      destruct c; cbn [W_out b_out uniform]; try lra; congruence.
  - intros c Hc. unfold logit. assert (H : 3 <= stream uniform (prompt x ++ [due x]) (due x)).
    { apply stream_after_answer; [discriminate|]. unfold due. now destruct (_ <? _)%nat. }
    destruct c; cbn [W_out b_out uniform]; try lra; congruence.
Qed.
