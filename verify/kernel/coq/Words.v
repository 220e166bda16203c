(* From the words of a file to integers: every stored number is an integer over one power of two. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Flocq Require Import Core Binary Bits.
From Weightproof Require Import Model Stored.
Import ListNotations.
Open Scope R_scope.

Definition unpacked (f : format) (word : Z) : full_float :=
  binary_float_of_bits_aux (significand_bits f) (exponent_bits f) word.

(* significand * 2^exponent, over 2^s. *)
Definition scaled (s e m : Z) : Z := if (0 <=? e + s)%Z then (m * 2 ^ (e + s))%Z else (m / 2 ^ (- (e + s)))%Z.
Definition scales (s e m : Z) : bool := if (0 <=? e + s)%Z then true else (m mod 2 ^ (- (e + s)) =? 0)%Z.

(* The integer that a word's number is over 2^s, if `fits` says that there is one. *)
Definition integer (f : format) (s word : Z) : Z :=
  match unpacked f word with
  | F754_finite negative m e => scaled s e (cond_Zopp negative (Zpos m))
  | _ => 0%Z
  end.

Definition in_width (f : format) (word : Z) : bool :=
  ((0 <=? word) && (word <? 2 ^ (significand_bits f + exponent_bits f + 1)))%Z.

Definition fits (f : format) (s word : Z) : bool :=
  in_width f word &&
  match unpacked f word with
  | F754_zero _ => true
  | F754_finite negative m e => scales s e (cond_Zopp negative (Zpos m))
  | _ => false
  end.

Lemma value_unpacked (f : format) (word : Z) : value f word = FF2R radix2 (unpacked f word).
Proof. apply B2R_FF2B. Qed.

Lemma finite_unpacked (f : format) (word : Z) :
  is_finite _ _ (datum f word) = is_finite_FF (unpacked f word).
Proof. apply is_finite_FF2B. Qed.

Lemma fits_is_number (f : format) (s word : Z) : fits f s word = true -> is_number f word.
Proof.
  unfold fits, is_number, in_width. rewrite !andb_true_iff, Z.leb_le, Z.ltb_lt, finite_unpacked.
  intros [Hw H]. split; [exact Hw|]. now destruct (unpacked f word).
Qed.

Lemma scaled_is_exact (s e m : Z) : (0 <= s)%Z -> scales s e m = true ->
  IZR m * bpow radix2 e = IZR (scaled s e m) / IZR (2 ^ s).
Proof.
  intros Hs. unfold scales, scaled.
  assert (H2 : forall n, (0 <= n)%Z -> IZR (2 ^ n) = bpow radix2 n) by (intros n Hn; exact (IZR_Zpower radix2 n Hn)).
  assert (Hpos : 0 < bpow radix2 s) by apply bpow_gt_0.
  destruct (Z.leb_spec 0 (e + s)) as [H|H].
  - intros _. rewrite mult_IZR, !H2, bpow_plus by lia. field. lra.
  - rewrite Z.eqb_eq. intros Hmod.
    assert (Hm : (m = 2 ^ (- (e + s)) * (m / 2 ^ (- (e + s))))%Z)
      by (apply Z_div_exact_full_2; [apply Z.pow_nonzero; lia | exact Hmod]).
    rewrite Hm at 1. rewrite mult_IZR, !H2 by lia.
    replace (bpow radix2 e) with (bpow radix2 (e + s) / bpow radix2 s)
      by (rewrite bpow_plus; field; lra).
    rewrite bpow_opp. pose proof (bpow_gt_0 radix2 (e + s)). field. lra.
Qed.

Lemma integer_is_value (f : format) (s word : Z) : (0 <= s)%Z -> fits f s word = true ->
  value f word = IZR (integer f s word) / IZR (2 ^ s).
Proof.
  intros Hs. unfold fits. rewrite andb_true_iff, value_unpacked. unfold integer.
  intros [_ H].
  destruct (unpacked f word) as [b|b|b pl|b m e]; try discriminate; simpl.
  - field. apply IZR_neq, Z.pow_nonzero; lia.
  - unfold F2R. simpl. now apply scaled_is_exact.
Qed.

(* ---- Tensors ------------------------------------------------------------------------------------------------------ *)

Definition integers1 (f : format) (s : Z) (words : list Z) : list Z := map (integer f s) words.
Definition integers2 (f : format) (s : Z) (words : list (list Z)) : list (list Z) := map (integers1 f s) words.
Definition all_fit1 (f : format) (s : Z) (words : list Z) : bool := forallb (fits f s) words.
Definition all_fit2 (f : format) (s : Z) (words : list (list Z)) : bool := forallb (all_fit1 f s) words.

Definition zat1 (v : list Z) (i : nat) : Z := nth i v 0%Z.
Definition zat2 (M : list (list Z)) (i j : nat) : Z := zat1 (nth i M []) j.

Lemma at1_vector_of (f : format) (s : Z) (words : list Z) (i : nat) :
  (0 <= s)%Z -> all_fit1 f s words = true ->
  at1 (vector_of f words) i = IZR (zat1 (integers1 f s words) i) / IZR (2 ^ s).
Proof.
  intros Hs H. unfold at1, vector_of, zat1, integers1. revert i.
  induction words as [|w words IH]; intros i; simpl in *.
  - destruct i; simpl; lra.
  - apply andb_true_iff in H as [Hw H]. destruct i as [|i]; simpl; [now apply integer_is_value | now apply IH].
Qed.

Lemma at2_matrix_of (f : format) (s : Z) (words : list (list Z)) (i j : nat) :
  (0 <= s)%Z -> all_fit2 f s words = true ->
  at2 (matrix_of f words) i j = IZR (zat2 (integers2 f s words) i j) / IZR (2 ^ s).
Proof.
  intros Hs H. unfold at2, matrix_of, zat2, integers2. revert i.
  induction words as [|w words IH]; intros i; cbn [map].
  - destruct i, j; unfold at1, zat1; simpl; lra.
  - cbn in H. apply andb_true_iff in H as [Hw H].
    destruct i as [|i]; cbn [nth]; [now apply at1_vector_of | now apply IH].
Qed.
