(* Integer brackets around exponentials, computed by coq-interval's I.exp, whose correctness is a theorem. *)

From Coq Require Import Reals ZArith Lia Lra.
From Flocq Require Import Core.
From Interval Require Import Float.Basic Float.Specific_ops Float.Specific_stdz Float.Generic_proof Real.Xreal
  Interval.Interval Interval.Float Interval.Float_full Float.Sig.
From Weightproof Require Import Forms Queries.
Open Scope R_scope.

Module F := SpecificFloat StdZRadix2.
Module I := FloatIntervalFull F.

(* ---- Floats times 2^bits, rounded down and up --------------------------------------------------------------------- *)

Definition shifted_down (bits m e : Z) : Z :=
  if (0 <=? e + bits)%Z then (m * 2 ^ (e + bits))%Z else (m / 2 ^ (- (e + bits)))%Z.
Definition shifted_up (bits m e : Z) : Z := (- shifted_down bits (- m) e)%Z.

Lemma shifted_down_is_below (bits m e : Z) : (0 <= bits)%Z ->
  IZR (shifted_down bits m e) <= IZR m * bpow radix2 e * IZR (2 ^ bits).
Proof.
  intros Hb. unfold shifted_down.
  assert (H2 : forall n, (0 <= n)%Z -> IZR (2 ^ n) = bpow radix2 n) by (intros n Hn; exact (IZR_Zpower radix2 n Hn)).
  rewrite (H2 bits Hb), Rmult_assoc, <- bpow_plus.
  destruct (Z.leb_spec 0 (e + bits)) as [H|H].
  - rewrite mult_IZR, H2 by lia. lra.
  - rewrite <- (Z.opp_involutive (e + bits)) at 2. rewrite bpow_opp.
    set (n := (- (e + bits))%Z) in *. rewrite <- H2 by lia.
    assert (Hpos : (0 < 2 ^ n)%Z) by (apply Z.pow_pos_nonneg; lia).
    pose proof (Z.mul_div_le m (2 ^ n) Hpos) as Hle. apply IZR_le in Hle. apply IZR_lt in Hpos.
    rewrite mult_IZR in Hle. apply Rmult_le_reg_l with (1 := Hpos). field_simplify; lra.
Qed.

Lemma shifted_up_is_above (bits m e : Z) : (0 <= bits)%Z ->
  IZR m * bpow radix2 e * IZR (2 ^ bits) <= IZR (shifted_up bits m e).
Proof.
  intros Hb. unfold shifted_up. rewrite opp_IZR.
  pose proof (shifted_down_is_below bits (- m) e Hb) as H. rewrite opp_IZR in H. lra.
Qed.

(* ---- The bracket --------------------------------------------------------------------------------------------------- *)

(* The integers around 2^bits y, for y in an interval between 0 and 1; what the interval does not say is 0 and 1. *)
Definition lower_integer (bits : Z) (u : F.type) : Z :=
  match F.toF u with Basic.Float s m e => Z.max 0 (shifted_down bits (cond_Zopp s (Zpos m)) e) | _ => 0%Z end.
Definition upper_integer (bits : Z) (u : F.type) : Z :=
  match F.toF u with Basic.Float s m e => shifted_up bits (cond_Zopp s (Zpos m)) e | _ => (2 ^ bits)%Z end.

Definition integers_around (bits : Z) (i : I.type) : bracket :=
  match i with
  | Float.Ibnd low high => (lower_integer bits low, upper_integer bits high)
  | Float.Inan => (0, 2 ^ bits)%Z
  end.

Lemma FtoR_is_F2R (s : bool) (m : positive) (e : Z) : FtoR F.radix s m e = IZR (cond_Zopp s (Zpos m)) * bpow radix2 e.
Proof. rewrite FtoR_split. reflexivity. Qed.

Lemma integers_around_are_around (bits : Z) (i : I.type) (y : R) :
  (0 <= bits)%Z -> 0 < y <= 1 -> contains (I.convert i) (Xreal y) ->
  around (integers_around bits i) (y * IZR (2 ^ bits)).
Proof.
  intros Hb Hy. assert (Hpos : 0 < IZR (2 ^ bits)) by (apply IZR_lt, Z.pow_pos_nonneg; lia).
  assert (H0 : 0 <= y * IZR (2 ^ bits)) by nra.
  assert (H1 : y * IZR (2 ^ bits) <= IZR (2 ^ bits)) by nra.
  unfold around, integers_around, I.convert. destruct i as [|low high]; cbn [fst snd]; [now simpl|].
  destruct (andb _ _).
  2: { intros [Ha Hc]. simpl in *. lra. }
  intros [Ha Hc]. unfold lower_integer, upper_integer, I.F.toX, F.toX in *. split.
  - destruct (F.toF low) as [| |s m e]; simpl; try lra. simpl in Ha.
    rewrite FtoR_is_F2R in Ha.
    pose proof (shifted_down_is_below bits (cond_Zopp s (Zpos m)) e Hb).
    destruct (Z.max_spec 0 (shifted_down bits (cond_Zopp s (Zpos m)) e)) as [[_ ->]|[_ ->]]; [|simpl; lra].
    nra.
  - destruct (F.toF high) as [| |s m e]; simpl; try lra. simpl in Hc.
    rewrite FtoR_is_F2R in Hc.
    pose proof (shifted_up_is_above bits (cond_Zopp s (Zpos m)) e Hb). nra.
Qed.

(* den * sqrt d, as an interval. *)
Definition divisor (prec : F.precision) (den d : Z) : I.type :=
  I.mul prec (I.fromZ prec den) (I.sqrt prec (I.fromZ prec d)).

(* Integers around 2^bits exp (n / divisor), for n <= 0. *)
Definition exp_bracket (prec : F.precision) (bits : Z) (div : I.type) (n : Z) : bracket :=
  if (n =? 0)%Z then (2 ^ bits, 2 ^ bits)%Z
  else integers_around bits (I.exp prec (I.div prec (I.fromZ prec n) div)).

Lemma exp_bracket_is_around (prec : F.precision) (bits den d n : Z) :
  (0 <= bits)%Z -> (n <= 0)%Z -> (0 < den)%Z -> (0 < d)%Z ->
  around (exp_bracket prec bits (divisor prec den d) n) (exp (IZR n / (IZR den * sqrt (IZR d))) * IZR (2 ^ bits)).
Proof.
  intros Hb Hn Hden Hd. unfold exp_bracket.
  assert (Hr : 0 < IZR den * sqrt (IZR d)).
  { apply Rmult_lt_0_compat; [now apply IZR_lt|]. apply sqrt_lt_R0. now apply IZR_lt. }
  destruct (Z.eqb_spec n 0) as [->|Hne].
  - unfold Rdiv. rewrite Rmult_0_l, exp_0. unfold around. simpl. lra.
  - apply integers_around_are_around; [exact Hb| |].
    + split; [apply exp_pos|]. replace 1 with (exp 0) by apply exp_0.
      apply IZR_le in Hn. assert (IZR n / (IZR den * sqrt (IZR d)) <= 0).
      { apply Rmult_le_reg_r with (1 := Hr). unfold Rdiv. rewrite Rmult_assoc, Rinv_l; lra. }
      destruct H as [H| ->]; [left; now apply exp_increasing | right; reflexivity].
    + change (Xreal (exp (IZR n / (IZR den * sqrt (IZR d))))) with (Xexp (Xreal (IZR n / (IZR den * sqrt (IZR d))))).
      apply I.exp_correct.
      replace (Xreal (IZR n / (IZR den * sqrt (IZR d)))) with (Xdiv (Xreal (IZR n)) (Xmul (Xreal (IZR den)) (Xsqrt (Xreal (IZR d))))).
      * apply I.div_correct; [apply I.fromZ_correct|]. apply I.mul_correct; [apply I.fromZ_correct|].
        apply I.sqrt_correct, I.fromZ_correct.
      * simpl. unfold Xdiv'. destruct (is_zero_spec (IZR den * sqrt (IZR d))); [lra|reflexivity].
Qed.
