(* What the check of runs shows: if it says true of a dot file and a format, the file counts in that format, and a parity file
   tells parity. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Flocq Require Import Core Operations Binary.
From Weightproof Require Import Model Stored Sums Words Check Tables Margins Correct Evaluations RoundedEvaluations Runs RoundedRuns RunChecks.
Import ListNotations.
Open Scope R_scope.

(* ---- Exact binary numbers ------------------------------------------------------------------------------------------------- *)

Lemma nothing_is_0 : F2R nothing = 0. Proof. unfold F2R. simpl. ring. Qed.
Lemma power_is (e : Z) : F2R (power e) = bpow radix2 e. Proof. unfold F2R. simpl. ring. Qed.

Lemma is_below_is_right (a b : binary) : if is_below a b then F2R a <= F2R b else F2R b < F2R a.
Proof.
  assert (H : F2R (Fminus b a) = F2R b - F2R a) by apply F2R_minus. unfold is_below. destruct (Z.leb_spec 0 (Fnum (Fminus b a))) as [Hn|Hn].
  - apply (F2R_ge_0 radix2) in Hn. lra.
  - apply (F2R_lt_0 radix2) in Hn. lra.
Qed.

Lemma is_below_le (a b : binary) : is_below a b = true -> F2R a <= F2R b.
Proof. intros H. pose proof (is_below_is_right a b) as Hr. now rewrite H in Hr. Qed.

Lemma larger_is_larger (a b : binary) : F2R a <= F2R (larger a b) /\ F2R b <= F2R (larger a b).
Proof. unfold larger. pose proof (is_below_is_right a b). destruct (is_below a b); lra. Qed.

Lemma F2R_fsum (n : nat) (g : nat -> binary) : F2R (fsum n g) = sum n (fun j => F2R (g j)).
Proof. induction n as [|n IH]; cbn [fsum sum]; [apply nothing_is_0|]. now rewrite F2R_plus, IH. Qed.

Lemma fmost_is_most (n : nat) (g : nat -> binary) : 0 <= F2R (fmost n g) /\ forall i, (i < n)%nat -> F2R (g i) <= F2R (fmost n g).
Proof.
  induction n as [|n [IH0 IH]]; cbn [fmost]; [rewrite nothing_is_0; split; [lra|lia]|].
  destruct (larger_is_larger (fmost n g) (g n)) as [H1 H2]. split; [lra|]. intros i Hi.
  destruct (Nat.eq_dec i n) as [->|Hne]; [exact H2|]. specialize (IH i ltac:(lia)). lra.
Qed.

Lemma every_is_every (n : nat) (test : nat -> bool) : every n test = true -> forall i, (i < n)%nat -> test i = true.
Proof. unfold every. rewrite forallb_forall. intros H i Hi. apply H, in_seq. lia. Qed.

Lemma get2_table (k n : nat) (g : nat -> nat -> binary) (t c : nat) : (t < k)%nat -> (c < n)%nat -> get2 (table k n g) t c = g t c.
Proof. intros Ht Hc. unfold get2, table, get1, row. now rewrite !nth_map_seq. Qed.

Lemma reduced_is_same (y : binary) : F2R (reduced y) = F2R y.
Proof.
  unfold reduced. set (e := unit_of_one y). destruct (Z.leb_spec (Fexp y) e) as [H1|]; [|reflexivity].
  destruct (Z.eqb_spec (Fnum y mod 2 ^ (e - Fexp y)) 0) as [H2|]; [|reflexivity]. cbn [andb].
  apply Z_div_exact_full_2 in H2; [|apply Z.pow_nonzero; lia]. unfold F2R. cbn [Fnum Fexp]. rewrite H2 at 2.
  rewrite mult_IZR. replace e with (Fexp y + (e - Fexp y))%Z at 2 by ring. rewrite bpow_plus.
  rewrite <- (IZR_Zpower radix2) with (e := (e - Fexp y)%Z) by lia. cbn. ring.
Qed.

Lemma number_is_value (f : format) (word : Z) : F2R (number f word) = value f word.
Proof.
  rewrite value_unpacked. unfold number. destruct (unpacked f word); cbn [FF2R]; rewrite ?reduced_is_same, ?nothing_is_0; reflexivity.
Qed.

Lemma get1_numbers (f : format) (words : list Z) (i : nat) : F2R (get1 (map (number f) words) i) = at1 (vector_of f words) i.
Proof.
  unfold get1, at1, vector_of. revert i. induction words as [|w words IH]; intros [|i]; cbn; rewrite ?nothing_is_0; try reflexivity; [apply number_is_value|apply IH].
Qed.

Lemma get2_numbers (f : format) (words : list (list Z)) (i j : nat) : F2R (get2 (numbers f words) i j) = at2 (matrix_of f words) i j.
Proof.
  unfold get2, at2, matrix_of, numbers. revert i. induction words as [|w words IH]; intros [|i]; cbn [map nth].
  - unfold get1, at1. destruct j; apply nothing_is_0.
  - unfold get1, at1. destruct j; apply nothing_is_0.
  - apply get1_numbers.
  - apply IH.
Qed.

Lemma is_multiple_multiple (e : Z) (y : binary) : is_multiple e y = true -> multiple (bpow radix2 e) (F2R y).
Proof.
  unfold is_multiple, multiple, F2R. rewrite !orb_true_iff, andb_true_iff, Z.eqb_eq, !Z.leb_le, Z.eqb_eq. intros [[H|H]|[H1 H2]].
  - rewrite H. exists 0%Z. ring.
  - exists (Fnum y * 2 ^ (Fexp y - e))%Z. rewrite mult_IZR. replace (Fexp y) with (e + (Fexp y - e))%Z at 1 by ring.
    rewrite bpow_plus, <- (IZR_Zpower radix2) with (e := (Fexp y - e)%Z) by lia. cbn. ring.
  - apply Z_div_exact_full_2 in H2; [|apply Z.pow_nonzero; lia]. exists (Fnum y / 2 ^ (e - Fexp y))%Z. rewrite H2 at 1.
    replace e with (Fexp y + (e - Fexp y))%Z at 3 by ring. rewrite mult_IZR, bpow_plus.
    rewrite <- (IZR_Zpower radix2) with (e := (e - Fexp y)%Z) by lia. cbn. ring.
Qed.

(* ---- Multiples ----------------------------------------------------------------------------------------------------------------- *)

Lemma multiple_times (a b : Z) (v w : R) : multiple (bpow radix2 a) v -> multiple (bpow radix2 b) w -> multiple (bpow radix2 (a + b)) (v * w).
Proof. intros [y ->] [z ->]. exists (y * z)%Z. rewrite bpow_plus, mult_IZR. ring. Qed.

Lemma multiple_of_less (a b : Z) (v : R) : (a <= b)%Z -> multiple (bpow radix2 b) v -> multiple (bpow radix2 a) v.
Proof.
  intros H [z ->]. exists (2 ^ (b - a) * z)%Z. rewrite mult_IZR. replace b with (a + (b - a))%Z at 1 by ring.
  rewrite bpow_plus, <- (IZR_Zpower radix2) with (e := (b - a)%Z) by lia. cbn. ring.
Qed.

Lemma multiple_plus (g v w : R) : multiple g v -> multiple g w -> multiple g (v + w).
Proof. intros [y ->] [z ->]. exists (y + z)%Z. rewrite plus_IZR. ring. Qed.

Lemma multiple_sum (g : R) (n : nat) (h : nat -> R) : (forall j, (j < n)%nat -> multiple g (h j)) -> multiple g (sum n h).
Proof.
  intros H. induction n as [|n IH]; cbn [sum]; [exists 0%Z; ring|]. apply multiple_plus; [apply IH; intros; apply H|apply H]; lia.
Qed.

Lemma multiple_max (g v : R) : multiple g v -> multiple g (Rmax 0 v).
Proof. intros H. unfold Rmax. destruct (Rle_dec 0 v); [exact H|]. exists 0%Z. ring. Qed.

(* ---- Layers ---------------------------------------------------------------------------------------------------------------------- *)

Section Format.
Variable f : format.

Local Notation emin := (least_exponent f).
Local Notation prec := (precision f).
Local Notation op := (operates f).
Local Notation holds := (stands f).

Lemma most_is_below_largest : F2R (most f) <= largest_number f.
Proof.
  unfold most, largest_number. rewrite power_is.
  assert (H : bpow radix2 (largest_exponent f - precision f) <= bpow radix2 (largest_exponent f - 1)) by (apply bpow_le; destruct f; cbn; lia).
  assert (H2 : bpow radix2 (largest_exponent f) = 2 * bpow radix2 (largest_exponent f - 1)).
  { replace (largest_exponent f) with (1 + (largest_exponent f - 1))%Z at 1 by ring. now rewrite bpow_plus. }
  lra.
Qed.

Lemma stands_wider (v y e e' : R) : holds v y e -> e <= e' -> holds v y e'.
Proof. intros H He r Hr. destruct (H r Hr). split; lra. Qed.

Lemma is_of_format_stands (y : binary) : is_of_format f y = true -> holds (F2R y) (F2R y) 0.
Proof.
  unfold is_of_format. rewrite orb_true_iff, !andb_true_iff, negb_true_iff, Z.eqb_eq, Z.leb_le. pose proof most_is_below_largest as Hm.
  intros [H|[[[[H1 H2] H3] H4] H5]].
  - assert (F2R y = 0) as -> by (unfold F2R; rewrite H; ring).
    apply number_stands; [apply generic_format_0|now left|]. rewrite Rabs_R0. unfold most in Hm. rewrite power_is in Hm. pose proof (bpow_ge_0 radix2 (largest_exponent f - 1)). lra.
  - pose proof (is_below_is_right (power (unit_of_one y + prec)) (Fabs y)) as H3'. rewrite H3, power_is, F2R_abs in H3'.
    apply is_below_le in H4, H5. rewrite power_is, F2R_abs in H4. rewrite F2R_abs in H5.
    apply number_stands; [|right; exact H4|lra].
    apply is_multiple_multiple in H1 as [z Hz]. set (e := unit_of_one y) in *. rewrite Hz in *.
    apply generic_format_FLT. apply (FLT_spec radix2 emin prec _ (Float radix2 z e)); [unfold F2R; cbn; ring| |exact H2].
    cbn. rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 e)), bpow_plus in H3' by apply bpow_ge_0. apply Rmult_lt_reg_l in H3'; [|apply bpow_gt_0].
    apply lt_IZR. rewrite abs_IZR. rewrite <- (IZR_Zpower radix2) in H3' by now destruct f. exact H3'.
Qed.

Lemma share_is_noise (n : nat) (size : binary) : F2R (share f n size) = noise f n (F2R size).
Proof.
  unfold share, noise, unit_roundoff. rewrite F2R_mult, F2R_plus, power_is. unfold F2R at 1. cbn [Fnum Fexp].
  rewrite INR_IZR_INZ. replace (3 - prec)%Z with (2 + (1 - prec))%Z by ring. rewrite bpow_plus. cbn. ring.
Qed.

Lemma stays_within_is_right (n : nat) (size : binary) : stays_within f false n size = true ->
  4 * INR (n + 7) * unit_roundoff prec <= 1 /\ F2R size + noise f n (F2R size) <= largest_number f.
Proof.
  unfold stays_within. rewrite andb_true_iff, Z.leb_le. intros [H1 H2]. apply is_below_le in H2. rewrite F2R_plus, share_is_noise in H2.
  pose proof most_is_below_largest. split; [|lra]. unfold unit_roundoff. rewrite INR_IZR_INZ. apply IZR_le in H1. rewrite mult_IZR in H1.
  change (2 ^ prec)%Z with (Zpower radix2 prec) in H1. rewrite IZR_Zpower in H1 by now destruct f.
  apply (Rmult_le_reg_r (bpow radix2 prec)); [apply bpow_gt_0|]. rewrite Rmult_assoc, <- bpow_plus.
  replace (1 - prec + prec)%Z with 1%Z by ring. change (bpow radix2 1) with 2. lra.
Qed.

(* v is a multiple of one of the parts; all of them are multiples of a power of two. *)
Definition has_part (parts : list binary) (v : R) : Prop := exists y, In y parts /\ multiple (F2R y) v.
Definition are_multiples (parts : list binary) : Prop := forall y, In y parts -> multiple (bpow radix2 (unit_of parts)) (F2R y).

Lemma part_multiple (parts : list binary) (v : R) : are_multiples parts -> has_part parts v -> multiple (bpow radix2 (unit_of parts)) v.
Proof. intros H [y [Hy [z ->]]]. destruct (H y Hy) as [k ->]. exists (k * z)%Z. rewrite mult_IZR. ring. Qed.

Lemma fits_is_right (parts : list binary) (size : binary) : fits f parts size = true -> stays_within f true 0 size = true ->
  fits_unit f (unit_of parts) (F2R size) /\ are_multiples parts.
Proof.
  unfold fits, stays_within, fits_unit, least_normal_exponent. rewrite !andb_true_iff, Z.leb_le, forallb_forall. intros [[H1 H2] H3] H4.
  apply is_below_le in H2, H4. rewrite power_is in H2. pose proof most_is_below_largest. split; [repeat split; lra || lia|].
  intros y Hy. now apply is_multiple_multiple, H3.
Qed.

(* What a layer says of one of its sums. *)
Definition layer_says (before exact : bool) (parts : list binary) (terms : nat) (size inherits wrong : R) : Prop :=
  (exact = true -> before = true /\ are_multiples parts) /\
  if exact then fits_unit f (unit_of parts) size /\ wrong = 0
  else 4 * INR (terms + 7) * unit_roundoff prec <= 1 /\ size + noise f terms size <= largest_number f /\ wrong = inherits + noise f terms size.

Lemma layer_is_right (before : bool) (k n terms : nat) (size inherits : nat -> nat -> binary) (parts : nat -> nat -> list binary) (t c : nat) :
  let l := layer_of f before k n terms size inherits parts in all_stay l = true -> (t < k)%nat -> (c < n)%nat ->
  layer_says before (is_exact l) (parts t c) terms (F2R (size t c)) (F2R (inherits t c)) (F2R (get2 (errors l) t c)).
Proof.
  intros l Hs Ht Hc. unfold layer_says. pose proof (every_is_every _ _ Hs t Ht) as Hs'. cbn beta in Hs'.
  pose proof (every_is_every _ _ Hs' c Hc) as Hsize. cbn beta in Hsize. rewrite get2_table in Hsize by assumption.
  assert (He : get2 (errors l) t c = error f (is_exact l) terms (size t c) (inherits t c)).
  { unfold l, layer_of. cbn [errors is_exact]. rewrite get2_table by assumption. now rewrite get2_table by assumption. }
  rewrite He. fold (is_exact l) in Hsize. unfold error. destruct (is_exact l) eqn:Hexact.
  - unfold l, layer_of in Hexact. cbn [is_exact] in Hexact, Hsize. rewrite Hexact in Hsize. apply andb_true_iff in Hexact as [Hb Hf].
    pose proof (every_is_every _ _ (every_is_every _ _ Hf t Ht) c Hc) as Hfit. cbn beta in Hfit. rewrite get2_table in Hfit by assumption.
    destruct (fits_is_right _ _ Hfit Hsize) as [H1 H2]. split; [easy|]. split; [exact H1|apply nothing_is_0].
  - split; [discriminate|]. unfold l, layer_of in Hexact. cbn [is_exact] in Hexact, Hsize. rewrite Hexact in Hsize.
    apply stays_within_is_right in Hsize as [H1 H2]. rewrite F2R_plus, share_is_noise. now repeat split.
Qed.

Lemma sizes_of_exact (n : nat) (g h : nat -> R) (eg eh : nat -> R) : (forall j, (j < n)%nat -> eg j = 0 /\ eh j = 0) ->
  sizes n g h eg eh = sum n (fun j => Rabs (g j * h j)).
Proof. intros H. apply sum_ext. intros j Hj. destruct (H j Hj) as [-> ->]. rewrite Rabs_mult. ring. Qed.

(* One sum of a layer, and one with a bias. *)
Lemma product_in_layer (before exact : bool) (parts : list binary) (terms : nat) (size inherits wrong : R) (g h cg ch eg eh : nat -> R) (y : R) :
  layer_says before exact parts terms size inherits wrong ->
  (forall j, (j < terms)%nat -> holds (g j) (cg j) (eg j) /\ holds (h j) (ch j) (eh j)) ->
  (before = true -> forall j, (j < terms)%nat -> eg j = 0 /\ eh j = 0) ->
  product op terms cg ch y -> sizes terms g h eg eh <= size -> inherited terms g h eg eh <= inherits ->
  (exact = true -> forall j, (j < terms)%nat -> has_part parts (g j * h j)) ->
  holds (sum terms (fun j => g j * h j)) y wrong.
Proof.
  intros [Hb Hl] Hstands Hzero Hy Hs Hi Hm. destruct exact.
  - destruct Hl as [Hf ->]. destruct (Hb eq_refl) as [Hbefore Hparts]. specialize (Hzero Hbefore). rewrite (sizes_of_exact _ _ _ _ _ Hzero) in Hs.
    apply (product_stands_exactly f (unit_of parts) terms g h cg ch y size); try assumption; intros j Hj; destruct (Hzero j Hj) as [H1 H2], (Hstands j Hj) as [H3 H4];
      rewrite ?H1, ?H2 in *; try assumption. now apply part_multiple, Hm.
  - destruct Hl as (Hu & Hs' & ->). apply (stands_wider _ _ (inherited terms g h eg eh + noise f terms size)); [|lra].
    apply (product_stands f terms g h cg ch eg eh y size); try assumption; intros j Hj; now apply Hstands.
Qed.

Lemma product_plus_in_layer (before exact : bool) (parts : list binary) (terms : nat) (size inherits wrong : R) (g h cg ch eg eh : nat -> R) (b y : R) :
  layer_says before exact parts terms size inherits wrong ->
  (forall j, (j < terms)%nat -> holds (g j) (cg j) (eg j) /\ holds (h j) (ch j) (eh j)) -> holds b b 0 ->
  (before = true -> forall j, (j < terms)%nat -> eg j = 0 /\ eh j = 0) ->
  product_plus op terms cg ch b y -> sizes terms g h eg eh + Rabs b <= size -> inherited terms g h eg eh <= inherits ->
  (exact = true -> forall j, (j < terms)%nat -> has_part parts (g j * h j)) -> has_part parts b ->
  holds (sum terms (fun j => g j * h j) + b) y wrong.
Proof.
  intros [Hb Hl] Hstands Hbias Hzero Hy Hs Hi Hm Hmb. destruct exact.
  - destruct Hl as [Hf ->]. destruct (Hb eq_refl) as [Hbefore Hparts]. specialize (Hzero Hbefore). rewrite (sizes_of_exact _ _ _ _ _ Hzero) in Hs.
    apply (product_plus_stands_exactly f (unit_of parts) terms g h cg ch b b y size); try assumption;
      [..|now apply part_multiple]; intros j Hj; destruct (Hzero j Hj) as [H1 H2], (Hstands j Hj) as [H3 H4];
      rewrite ?H1, ?H2 in *; try assumption. now apply part_multiple, Hm.
  - destruct Hl as (Hu & Hs' & ->). apply (stands_wider _ _ (inherited terms g h eg eh + noise f terms size)); [|lra].
    apply (product_plus_stands f terms g h cg ch eg eh b b y size); try assumption; intros j Hj; now apply Hstands.
Qed.
End Format.

(* ---- A model's numbers ---------------------------------------------------------------------------------------------------------- *)

Lemma sum_swap (n k : nat) (g : nat -> nat -> R) : sum n (fun i => sum k (g i)) = sum k (fun j => sum n (fun i => g i j)).
Proof. induction n as [|n IH]; cbn [sum]; [now rewrite sum_zero|]. now rewrite IH, <- sum_plus. Qed.

Section Model.
Variable m : model.
Hypothesis is_known : kind m = Dot \/ kind m = Parity.
Hypothesis no_softmax : softmax m = false.

Definition query_of (t c : nat) : R := sum (d m) (fun j => embedding m t j * at2 (W_Q m) j c).
Definition key_of (t c : nat) : R := sum (d m) (fun j => embedding m t j * at2 (W_K m) j c).
Definition product_of (t s : nat) : R := sum (d m) (fun c => query_of t c * key_of s c).
Definition score_of (t s : nat) : R := product_of t s / root m.
Definition mixed_of (x : list nat) (t c : nat) : R := sum (length x) (fun j => score_of t (nth j x O) * embedding m (nth j x O) c) + embedding m t c.
Definition sum_of (x : list nat) (t n : nat) : R := sum (d m) (fun c => mixed_of x t c * at2 (W_1 m) c n) + at1 (b_1 m) n.
Definition logit_of (x : list nat) (t c : nat) : R := sum (p m) (fun n => Rmax 0 (sum_of x t n) * at2 (W_2 m) n c) + at1 (b_2 m) c.

Lemma mixed_is_of (x : list nat) (i c : nat) : mixed_token m x i c = mixed_of x (nth i x O) c.
Proof.
  unfold mixed_token, mixed_of, mixing, scores, context. rewrite no_softmax.
  destruct is_known as [->| ->]; now rewrite map_map, combine_same, map_map, (map_nth_seq _ x O), total_seq, Rplus_comm.
Qed.

Lemma logit_is_of (x : list nat) (i c : nat) : logit m x i c = logit_of x (nth i x O) c.
Proof.
  unfold logit, logit_of. f_equal. apply sum_ext. intros n _. f_equal. unfold hidden, sum_of, times. do 2 f_equal.
  apply sum_ext. intros j _. now rewrite mixed_is_of.
Qed.

Lemma sum_is_linear (x : list nat) (t n : nat) : let reads s := sum (d m) (fun c => embedding m s c * at2 (W_1 m) c n) in
  sum_of x t n = reads t + sum (length x) (fun j => score_of t (nth j x O) * reads (nth j x O)) + at1 (b_1 m) n.
Proof.
  cbv zeta. unfold sum_of, mixed_of. f_equal.
  rewrite (sum_ext _ _ (fun c => embedding m t c * at2 (W_1 m) c n + sum (length x)
    (fun j => score_of t (nth j x O) * (embedding m (nth j x O) c * at2 (W_1 m) c n)))).
  - rewrite sum_plus, sum_swap. f_equal. apply sum_ext. intros j _. apply sum_scale.
  - intros c _. rewrite Rmult_plus_distr_r, <- sum_scale_right, Rplus_comm. f_equal. apply sum_ext. intros j _. ring.
Qed.
End Model.

Lemma inverse_root_is_right (f : format) (x : file) : (1 <= file_d x)%nat -> let c := F2R (inverse_root f x) in
  0 <= c <= / sqrt (INR (file_d x)) /\ / sqrt (INR (file_d x)) <= c + unit_roundoff (precision f) / 2.
Proof.
  intros Hd c. set (q := sqrt (INR (file_d x))). set (B := bpow radix2 (precision f)).
  assert (Hn : 1 <= INR (file_d x)) by (change 1 with (INR 1); now apply le_INR).
  assert (Hq : 1 <= q) by (unfold q; rewrite <- sqrt_1; apply sqrt_le_1; lra).
  assert (Hqq : q * q = IZR (Z.of_nat (file_d x))) by (unfold q; rewrite sqrt_sqrt by lra; apply INR_IZR_INZ).
  assert (HB : 0 < B) by apply bpow_gt_0. assert (Hp : (0 <= precision f)%Z) by now destruct f.
  set (n := (4 ^ precision f / Z.of_nat (file_d x))%Z). set (a := Z.sqrt n).
  assert (Hfour : IZR (4 ^ precision f) = B * B).
  { change 4%Z with (2 * 2)%Z. rewrite Z.pow_mul_l, mult_IZR. unfold B. now rewrite <- (IZR_Zpower radix2) by exact Hp. }
  assert (H0 : (0 <= n)%Z) by (apply Z.div_pos; [apply Z.pow_nonneg|]; lia).
  destruct (Z.sqrt_spec n H0) as [H1 H2]. fold a in H1, H2. pose proof (Z.sqrt_nonneg n) as Ha. fold a in Ha.
  pose proof (Z.mul_div_le (4 ^ precision f) (Z.of_nat (file_d x)) ltac:(lia)) as H3. fold n in H3.
  pose proof (Z.mul_succ_div_gt (4 ^ precision f) (Z.of_nat (file_d x)) ltac:(lia)) as H4. fold n in H4.
  assert (Hlow : (a * a * Z.of_nat (file_d x) <= 4 ^ precision f)%Z) by nia.
  assert (Hhigh : (4 ^ precision f <= Z.succ a * Z.succ a * Z.of_nat (file_d x))%Z) by nia.
  apply IZR_le in Hlow, Hhigh, Ha. rewrite !mult_IZR, Hfour, <- Hqq in *. rewrite succ_IZR in Hhigh.
  assert (Hc : c = IZR a / B) by (unfold c, F2R, inverse_root; fold n; fold a; cbn [Fnum Fexp]; now rewrite bpow_opp).
  assert (Hu : unit_roundoff (precision f) / 2 = / B).
  { unfold unit_roundoff, Zminus. rewrite bpow_plus, bpow_opp. fold B. change (bpow radix2 1) with 2. field. lra. }
  assert (Hlow' : IZR a * q <= B) by (apply Rsqr_incr_0_var; [unfold Rsqr; lra|lra]).
  assert (Hhigh' : B <= (IZR a + 1) * q) by (apply Rsqr_incr_0_var; [unfold Rsqr; lra|apply Rmult_le_pos; lra]).
  rewrite Hu, Hc. repeat split.
  - apply Rmult_le_pos; [exact Ha|]. left. now apply Rinv_0_lt_compat.
  - apply (Rmult_le_reg_r (q * B)); [apply Rmult_lt_0_compat; lra|]. replace (IZR a / B * (q * B)) with (IZR a * q) by (field; lra).
    replace (/ q * (q * B)) with B by (field; lra). exact Hlow'.
  - apply (Rmult_le_reg_r (q * B)); [apply Rmult_lt_0_compat; lra|]. replace ((IZR a / B + / B) * (q * B)) with ((IZR a + 1) * q) by (field; lra).
    replace (/ q * (q * B)) with B by (field; lra). exact Hhigh'.
Qed.

Lemma root_is_exact_right (f : format) (x : file) : (1 <= file_d x)%nat -> root_is_exact f x = true -> let q := sqrt (INR (file_d x)) in
  F2R (inverse_root f x) = / q /\ stands f q q 0 /\ stands f (/ q) (/ q) 0.
Proof.
  intros Hd H q. unfold root_is_exact in H. rewrite !andb_true_iff, Z.eqb_eq in H. destruct H as [[Heq Hinverse] Hroot].
  apply is_of_format_stands in Hinverse, Hroot. rewrite F2R_mult in Hroot.
  assert (Hn : 1 <= INR (file_d x)) by (change 1 with (INR 1); now apply le_INR).
  assert (Hq : 1 <= q) by (unfold q; rewrite <- sqrt_1; apply sqrt_le_1; lra).
  assert (Hqq : q * q = IZR (Z.of_nat (file_d x))) by (unfold q; rewrite sqrt_sqrt by lra; apply INR_IZR_INZ).
  destruct (inverse_root_is_right f x Hd) as [[Hc _] _]. fold q in Hc.
  change (F2R (Float radix2 (Z.of_nat (file_d x)) 0)) with (IZR (Z.of_nat (file_d x)) * 1) in Hroot. rewrite <- Hqq in *.
  assert (His : F2R (inverse_root f x) = / q).
  { set (c := F2R (inverse_root f x)) in *. assert (H1 : (c * q) * (c * q) = 1).
    { replace (c * q * (c * q)) with (c * c * (q * q)) by ring. rewrite Hqq. set (B := bpow radix2 (precision f)).
      assert (HB : 0 < B) by apply bpow_gt_0. apply (Rmult_eq_reg_r (B * B)); [|apply Rgt_not_eq, Rmult_lt_0_compat; exact HB].
      assert (Hfour : IZR (4 ^ precision f) = B * B).
      { change 4%Z with (2 * 2)%Z. rewrite Z.pow_mul_l, mult_IZR. unfold B. now rewrite <- (IZR_Zpower radix2) by now destruct f. }
      rewrite <- Hfour at 2. rewrite <- Heq, !mult_IZR. unfold c, F2R. change (Fexp (inverse_root f x)) with (- precision f)%Z.
      rewrite bpow_opp. fold B. field. lra. }
    apply (Rmult_eq_reg_r q); [|lra]. rewrite Rinv_l by lra. assert (0 <= c * q) by (apply Rmult_le_pos; lra). nra. }
  rewrite His in *. split; [reflexivity|split; [|exact Hinverse]]. replace (q * q * 1 * / q) with q in Hroot by (field; lra). exact Hroot.
Qed.

(* ---- The layers of a file -------------------------------------------------------------------------------------------------------- *)

Section File.
Variable f : format.
Variable x : file.

Local Notation m := (stored_model x).
Local Notation op := (operates f).
Local Notation holds := (stands f).
Local Notation words2 := (numbers (file_format x)).

Hypothesis kind_is_known : file_kind x = Dot \/ file_kind x = Parity.
Hypothesis softmax_is_false : file_softmax x = false.
Hypothesis shapes : well_shaped m.
Hypothesis of_format : all_of_format f x = true.
Hypothesis root_stays_in_format : root_stays f x = true.

Let E := words2 (E_words x).
Let WQ := words2 (W_Q_words x).
Let WK := words2 (W_K_words x).
Let W1 := words2 (W_1_words x).
Let W2 := words2 (W_2_words x).
Let b1 := map (number (file_format x)) (b_1_words x).
Let b2 := map (number (file_format x)) (b_2_words x).

(* A stored number stands for itself. *)
Definition itself (y : binary) : Prop := holds (F2R y) (F2R y) 0.

Lemma entries (M : list (list binary)) (P : binary -> Prop) : P nothing -> (forall y, In y (concat M) -> P y) -> forall i j, P (get2 M i j).
Proof.
  intros H0 H i j. unfold get2, get1. destruct (Nat.lt_ge_cases i (length M)) as [Hi|Hi].
  - destruct (Nat.lt_ge_cases j (length (nth i M []))) as [Hj|Hj].
    + apply H. apply in_concat. exists (nth i M []). split; now apply nth_In.
    + now rewrite nth_overflow.
  - rewrite (nth_overflow M) by assumption. destruct j; exact H0.
Qed.

Lemma all_themselves (M : list (list binary)) :
  In M [E; WQ; WK; W1; W2; [b1]; [b2]] -> forall i j, itself (get2 M i j).
Proof.
  intros HM. apply entries; [now apply is_of_format_stands|]. intros y Hy. apply is_of_format_stands.
  unfold all_of_format in of_format. rewrite forallb_forall in of_format. apply of_format.
  change (In y (concat E ++ concat WQ ++ concat WK ++ concat W1 ++ b1 ++ concat W2 ++ b2)). rewrite !in_app_iff.
  cbn [In] in HM. destruct HM as [<-|[<-|[<-|[<-|[<-|[<-|[<-|[]]]]]]]]; cbn [concat] in Hy; rewrite ?app_nil_r in Hy; tauto.
Qed.

Lemma weights_stay_in_format : weights_stay f m.
Proof.
  assert (H : forall ws, In (words2 ws) [E; WQ; WK; W1; W2; [b1]; [b2]] -> forall i j, Rabs (at2 (matrix_of (file_format x) ws) i j) <= largest_number f).
  { intros ws Hin i j. rewrite <- get2_numbers. apply (stands_still f _ _ _ (all_themselves _ Hin i j)). }
  intros i j. repeat apply Forall_cons; try apply Forall_nil;
    [apply (H (E_words x))|apply (H (W_Q_words x))|apply (H (W_K_words x))|apply (H (W_1_words x))|apply (H [b_1_words x])
    |apply (H (W_2_words x))|apply (H [b_2_words x])]; cbn; tauto.
Qed.

Lemma E_is (t c : nat) : F2R (get2 E t c) = embedding m t c. Proof. apply get2_numbers. Qed.
Lemma WQ_is (j c : nat) : F2R (get2 WQ j c) = at2 (W_Q m) j c. Proof. apply get2_numbers. Qed.
Lemma WK_is (j c : nat) : F2R (get2 WK j c) = at2 (W_K m) j c. Proof. apply get2_numbers. Qed.
Lemma W1_is (j c : nat) : F2R (get2 W1 j c) = at2 (W_1 m) j c. Proof. apply get2_numbers. Qed.
Lemma W2_is (j c : nat) : F2R (get2 W2 j c) = at2 (W_2 m) j c. Proof. apply get2_numbers. Qed.
Lemma b1_is (n : nat) : F2R (get1 b1 n) = at1 (b_1 m) n. Proof. apply get1_numbers. Qed.
Lemma b2_is (n : nat) : F2R (get1 b2 n) = at1 (b_2 m) n. Proof. apply get1_numbers. Qed.

Lemma E_stands (t c : nat) : holds (embedding m t c) (embedding m t c) 0.
Proof. rewrite <- E_is. apply all_themselves. now left. Qed.

(* ---- Queries, keys, scores ---------------------------------------------------------------------------------------------------------- *)

Lemma F2R_reach (exact wrong : list (list binary)) (i j : nat) : F2R (reach exact wrong i j) = Rabs (F2R (get2 exact i j)) + F2R (get2 wrong i j).
Proof. unfold reach. now rewrite F2R_plus, F2R_abs. Qed.

Lemma no_error (before exact : bool) (parts : list binary) (terms : nat) (size inherits wrong : R) :
  layer_says f before exact parts terms size inherits wrong -> exact = true -> wrong = 0.
Proof. intros [_ H] ->. apply H. Qed.

Lemma in_row (n j : nat) (g : nat -> binary) : (j < n)%nat -> In (g j) (row n g).
Proof. intros H. apply in_map, in_seq. lia. Qed.

(* A product of two known numbers is its own part. *)
Lemma product_has_part (parts : list binary) (a b : binary) : In (Fmult a b) parts -> has_part parts (F2R a * F2R b).
Proof. intros H. exists (Fmult a b). split; [exact H|]. exists 1%Z. rewrite F2R_mult. ring. Qed.

Lemma same_product (n : nat) (g h h' : nat -> R) (y : R) : (forall j, h j = h' j) -> product op n g h y -> product op n g h' y.
Proof. intros H [g' [r' [Hr Hy]]]. exists g', r'. split; [|exact Hy]. intros j Hj. rewrite <- H. now apply Hr. Qed.
Lemma same_product_plus (n : nat) (g h h' : nat -> R) (b b' y : R) : (forall j, h j = h' j) -> b = b' ->
  product_plus op n g h b y -> product_plus op n g h' b' y.
Proof. intros H <- [g' [r' [c [Hr Hy]]]]. exists g', r', c. split; [|exact Hy]. intros j Hj. rewrite <- H. now apply Hr. Qed.

Section Projection.
Variable W : list (list binary).
Hypothesis W_stands : forall i j, itself (get2 W i j).

Definition projected (t c : nat) : R := sum (d m) (fun j => embedding m t j * F2R (get2 W j c)).

Lemma times_matrix_is (t c : nat) : (t < T m)%nat -> (c < d m)%nat -> F2R (get2 (times_matrix x W) t c) = projected t c.
Proof.
  intros Ht Hc. unfold times_matrix. rewrite get2_table by assumption. rewrite F2R_fsum. apply sum_ext. intros j _.
  rewrite F2R_mult. f_equal. apply E_is.
Qed.

Lemma projection_stands (t c : nat) (y : R) : all_stay (projection f x W) = true -> (t < T m)%nat -> (c < d m)%nat ->
  product op (d m) (embedding m t) (fun j => F2R (get2 W j c)) y ->
  holds (projected t c) y (F2R (get2 (errors (projection f x W)) t c)) /\
  (is_exact (projection f x W) = true -> F2R (get2 (errors (projection f x W)) t c) = 0).
Proof.
  intros Hs Ht Hc Hy. unfold projection in *. pose proof (layer_is_right _ _ _ _ _ _ _ _ t c Hs Ht Hc) as Hl. split; [|exact (no_error _ _ _ _ _ _ _ Hl)].
  apply (product_in_layer f _ _ _ _ _ _ _ (embedding m t) (fun j => F2R (get2 W j c)) (embedding m t) (fun j => F2R (get2 W j c))
    (fun _ => 0) (fun _ => 0) y Hl).
  - intros j _. split; [apply E_stands|apply W_stands].
  - now intros.
  - exact Hy.
  - rewrite F2R_fsum. apply sum_le. intros j _. rewrite F2R_mult, !F2R_abs. fold E. rewrite E_is. lra.
  - unfold inherited. rewrite nothing_is_0, (sum_ext _ _ (fun _ => 0)), sum_zero by (intros; ring). lra.
  - intros _ j Hj. rewrite <- E_is. apply product_has_part. now apply (in_row (d m) j (fun j => Fmult (get2 E t j) (get2 W j c))).
Qed.
End Projection.

Let Q := projection f x WQ.
Let K := projection f x WK.
Let q := times_matrix x WQ.
Let k := times_matrix x WK.
Let P := scores_layer f x q k Q K.
Let raw := table (file_T x) (file_T x) (fun t s => fsum (file_d x) (fun c => Fmult (get2 q t c) (get2 k s c))).
Let SL := if is_divided x then divided_layer f x q k raw P else P.
Let scores := if is_divided x then divided_scores f x raw else raw.
Let M := mixed_layer f x scores SL.
Let of_mixed := mixed_bound x scores SL.
Let mixed_part := table (file_T x) (file_d x) (fun t c => part_of (get2 of_mixed t c) (mixed_parts x E scores t c)).
Let N := biased_layer f (is_exact M) (file_T x) (file_p x) (file_d x) of_mixed (errors M) mixed_part W1 b1.
Let of_neurons := neuron_bound x scores SL.
Let neuron_part := table (file_T x) (file_p x) (fun t n => part_of (get2 of_neurons t n) (biased_parts (file_d x) mixed_part W1 b1 t n)).
Let OL := biased_layer f (is_exact N) (file_T x) (file_classes x) (file_p x) of_neurons (errors N) neuron_part W2 b2.

Hypothesis every_layer_stays : fst (logit_errors f x) = true.

Lemma layers_stay : (all_stay Q = true /\ all_stay K = true /\ all_stay P = true /\ all_stay SL = true) /\
  all_stay M = true /\ all_stay N = true /\ all_stay OL = true.
Proof.
  assert (H : all_stay Q && all_stay K && all_stay P && all_stay SL && all_stay M && all_stay N && all_stay OL = true) by exact every_layer_stays.
  rewrite !andb_true_iff in H. tauto.
Qed.

Lemma WQ_stands (i j : nat) : itself (get2 WQ i j). Proof. apply all_themselves. cbn; auto. Qed.
Lemma WK_stands (i j : nat) : itself (get2 WK i j). Proof. apply all_themselves. cbn; auto. Qed.

Lemma query_is (t c : nat) : projected WQ t c = query_of m t c.
Proof. apply sum_ext. intros j _. f_equal. apply WQ_is. Qed.
Lemma key_is (t c : nat) : projected WK t c = key_of m t c.
Proof. apply sum_ext. intros j _. f_equal. apply WK_is. Qed.

Lemma query_stands (t c : nat) (y : R) : (t < T m)%nat -> (c < d m)%nat ->
  product op (d m) (embedding m t) (fun j => at2 (W_Q m) j c) y ->
  holds (query_of m t c) y (F2R (get2 (errors Q) t c)) /\ (is_exact Q = true -> F2R (get2 (errors Q) t c) = 0).
Proof.
  intros Ht Hc Hy. rewrite <- query_is. apply projection_stands; try assumption; [apply WQ_stands|apply layers_stay|].
  apply (same_product _ _ (fun j => at2 (W_Q m) j c)); [|exact Hy]. intros j. symmetry. apply WQ_is.
Qed.
Lemma key_stands (t c : nat) (y : R) : (t < T m)%nat -> (c < d m)%nat ->
  product op (d m) (embedding m t) (fun j => at2 (W_K m) j c) y ->
  holds (key_of m t c) y (F2R (get2 (errors K) t c)) /\ (is_exact K = true -> F2R (get2 (errors K) t c) = 0).
Proof.
  intros Ht Hc Hy. rewrite <- key_is. apply projection_stands; try assumption; [apply WK_stands|apply layers_stay|].
  apply (same_product _ _ (fun j => at2 (W_K m) j c)); [|exact Hy]. intros j. symmetry. apply WK_is.
Qed.

Lemma q_is (t c : nat) : (t < T m)%nat -> (c < d m)%nat -> F2R (get2 q t c) = query_of m t c.
Proof. intros. rewrite <- query_is. now apply times_matrix_is. Qed.
Lemma k_is (t c : nat) : (t < T m)%nat -> (c < d m)%nat -> F2R (get2 k t c) = key_of m t c.
Proof. intros. rewrite <- key_is. now apply times_matrix_is. Qed.

Lemma raw_is (t s : nat) : (t < T m)%nat -> (s < T m)%nat -> F2R (get2 raw t s) = product_of m t s.
Proof.
  intros Ht Hs. unfold raw. rewrite get2_table by assumption. rewrite F2R_fsum. apply sum_ext. intros c Hc.
  now rewrite F2R_mult, q_is, k_is.
Qed.

Section Score.
Variables t s : nat.
Hypothesis t_in_range : (t < T m)%nat.
Hypothesis s_in_range : (s < T m)%nat.

Lemma product_is_right (query key : nat -> R) (y : R) :
  (forall c, (c < d m)%nat -> product op (d m) (embedding m t) (fun j => at2 (W_Q m) j c) (query c)) ->
  (forall c, (c < d m)%nat -> product op (d m) (embedding m s) (fun j => at2 (W_K m) j c) (key c)) ->
  product op (d m) query key y ->
  holds (product_of m t s) y (F2R (get2 (errors P) t s)) /\ (is_exact P = true -> F2R (get2 (errors P) t s) = 0).
Proof.
  intros Hq Hk Hy. unfold P, scores_layer in *.
  pose proof (layer_is_right _ _ _ _ _ _ _ _ t s (proj1 (proj2 (proj2 (proj1 layers_stay)))) t_in_range s_in_range) as Hl.
  split; [|exact (no_error _ _ _ _ _ _ _ Hl)].
  apply (product_in_layer f _ _ _ _ _ _ _ (query_of m t) (key_of m s) query key
    (fun c => F2R (get2 (errors Q) t c)) (fun c => F2R (get2 (errors K) s c)) y Hl).
  - intros c Hc. split; [now apply query_stands, Hq|now apply key_stands, Hk].
  - intros He c Hc. apply andb_true_iff in He as [He1 He2].
    split; [now apply (query_stands t c (query c)); [| |apply Hq|]|now apply (key_stands s c (key c)); [| |apply Hk|]].
  - exact Hy.
  - rewrite F2R_fsum. apply sum_le. intros c Hc. rewrite F2R_mult, !F2R_reach, q_is, k_is by assumption. lra.
  - rewrite F2R_fsum. apply sum_le. intros c Hc. rewrite F2R_plus, !F2R_mult, F2R_reach, F2R_abs, q_is, k_is by assumption. lra.
  - intros _ c Hc. rewrite <- q_is, <- k_is by assumption. apply product_has_part.
    now apply (in_row (d m) c (fun c => Fmult (get2 q t c) (get2 k s c))).
Qed.

(* The table's number is off from the score by `away`, and what is computed by no more than the rest of the layer's error. *)
Let away := Rabs (F2R (get2 scores t s) - score_of m t s).

Lemma score_stands (v y : R) : holds (product_of m t s) v (F2R (get2 (errors P) t s)) -> (is_exact P = true -> F2R (get2 (errors P) t s) = 0) ->
  divided op m v y ->
  holds (score_of m t s) y (F2R (get2 (errors SL) t s) - away) /\ (is_exact SL = true -> F2R (get2 (errors SL) t s) = 0).
Proof.
  intros Hv Hexact Hy. pose proof (proj2 (proj2 (proj2 (proj1 layers_stay)))) as Hstay. unfold away, scores, SL, score_of, root_stays, is_divided, is_parity in *.
  destruct kind_is_known as [Hk|Hk]; rewrite Hk in *; cbn [negb orb] in *.
  - apply andb_true_iff in root_stays_in_format as [Hd Hroot]. apply Nat.leb_le in Hd. apply is_below_le in Hroot.
    pose proof (layer_is_right f _ _ _ _ _ _ _ t s Hstay t_in_range s_in_range) as Hl. fold (divided_layer f x q k raw P) in Hl.
    split; [|exact (no_error _ _ _ _ _ _ _ Hl)]. destruct Hl as [Hbefore Hl], (inverse_root_is_right f x Hd) as [Hc Hc'].
    unfold divided_scores. rewrite get2_table by assumption. rewrite F2R_mult, raw_is by assumption.
    unfold root. cbn [kind stored_model]. rewrite Hk. change (file_d x) with (d m) in *.
    destruct (is_exact (divided_layer f x q k raw P)).
    { destruct Hl as [Hfit ->], (Hbefore eq_refl) as [Hb Hparts]. apply andb_true_iff in Hb as [HP Hr]. rewrite Hexact in Hv by exact HP.
      destruct (root_is_exact_right f x Hd Hr) as (Hinverse & H1 & H2). rewrite Hinverse in *. change (file_d x) with (d m) in *.
      replace (product_of m t s * / sqrt (INR (d m)) - product_of m t s / sqrt (INR (d m))) with 0 by (unfold Rdiv; ring).
      rewrite Rabs_R0, Rminus_0_r. apply (divided_stands_exactly f m (product_of m t s) v y _ _) with (7 := Hfit); try assumption.
      - cbn. congruence.
      - assert (1 <= INR (d m)) by (change 1 with (INR 1); now apply le_INR). apply Rgt_not_eq, sqrt_lt_R0. lra.
      - unfold Rdiv, product_of. rewrite <- sum_scale_right. apply multiple_sum. intros c Hcd. apply (part_multiple _ _ Hparts).
        exists (Fmult (inverse_root f x) (Fmult (get2 q t c) (get2 k s c))). split.
        + apply in_map. now apply (in_row (d m) c (fun c => Fmult (get2 q t c) (get2 k s c))).
        + exists 1%Z. rewrite !F2R_mult, Hinverse, q_is, k_is by assumption. ring.
      - rewrite F2R_mult, F2R_plus, F2R_reach, raw_is, Hexact, Hinverse, Rplus_0_r by assumption. unfold Rdiv.
        rewrite Rabs_mult, (Rabs_pos_eq (/ _)) by apply Hc. apply Rmult_le_compat_l; [apply Rabs_pos|].
        unfold around_inverse. rewrite power_is. pose proof (bpow_ge_0 radix2 (8 - precision f)). lra. }
    destruct Hl as (_ & Hsize & ->). rewrite !F2R_mult, !F2R_plus, !F2R_mult, F2R_reach, raw_is in * by assumption.
    assert (Haround : F2R (around_inverse f) = 128 * unit_roundoff (precision f)).
    { unfold around_inverse, unit_roundoff. rewrite power_is. replace (8 - precision f)%Z with (7 + (1 - precision f))%Z by ring. now rewrite bpow_plus. }
    rewrite Haround in *. apply (divided_stands f m (product_of m t s) v); try assumption; [cbn; congruence|].
    pose proof (most_is_below_largest f) as Hm. rewrite INR_IZR_INZ. apply Rle_trans with (1 := Req_le _ _ eq_refl).
    unfold F2R in Hroot at 1. cbn [Fnum Fexp bpow] in Hroot. rewrite mult_IZR in Hroot. lra.
  - unfold divided in Hy. cbn [kind stored_model] in Hy. rewrite Hk in Hy. subst y. rewrite raw_is by assumption.
    unfold root. cbn [kind stored_model]. rewrite Hk. replace (product_of m t s / 1) with (product_of m t s) by field.
    split; [|exact Hexact]. replace (product_of m t s - product_of m t s) with 0 by ring. rewrite Rabs_R0, Rminus_0_r. exact Hv.
Qed.
End Score.

(* ---- A layer with a bias ------------------------------------------------------------------------------------------------------------- *)

Lemma part_is_right (bound : binary) (parts : list binary) (v : R) : Rabs v <= F2R bound -> multiple (bpow radix2 (unit_of parts)) v ->
  multiple (F2R (part_of bound parts)) v.
Proof.
  intros Hv Hm. unfold part_of. destruct (is_below bound nothing) eqn:Hb; [|now rewrite power_is].
  apply is_below_le in Hb. rewrite nothing_is_0 in *. exists 0%Z. pose proof (Rabs_pos v).
  assert (Rabs v = 0) by lra. rewrite Rmult_0_r. revert H0. unfold Rabs. destruct (Rcase_abs v); lra.
Qed.

Lemma biased_stands (before : bool) (rows n terms : nat) (bounds wrong parts W : list (list binary)) (b : list binary) (t c : nat)
    (g cg : nat -> R) (y : R) :
  let l := biased_layer f before rows n terms bounds wrong parts W b in
  let v := sum terms (fun j => g j * F2R (get2 W j c)) + F2R (get1 b c) in
  all_stay l = true -> (t < rows)%nat -> (c < n)%nat ->
  (forall j, (j < terms)%nat -> holds (g j) (cg j) (F2R (get2 wrong t j))) ->
  (before = true -> forall j, (j < terms)%nat -> F2R (get2 wrong t j) = 0 /\ multiple (F2R (get2 parts t j)) (g j)) ->
  (forall j, (j < terms)%nat -> Rabs (g j) <= F2R (get2 bounds t j)) ->
  (forall i j, itself (get2 W i j)) -> itself (get1 b c) ->
  product_plus op terms cg (fun j => F2R (get2 W j c)) (F2R (get1 b c)) y ->
  holds v y (F2R (get2 (errors l) t c)) /\
  (is_exact l = true -> F2R (get2 (errors l) t c) = 0 /\ multiple (bpow radix2 (unit_of (biased_parts terms parts W b t c))) v).
Proof.
  intros l v Hs Ht Hc Hg Hbefore Hbound HW Hb Hy. unfold l, biased_layer in *. pose proof (layer_is_right _ _ _ _ _ _ _ _ t c Hs Ht Hc) as Hl.
  match type of Hl with layer_says _ _ ?e _ _ _ _ _ => set (exact := e) in * end.
  assert (Hbias : has_part (biased_parts terms parts W b t c) (F2R (get1 b c)))
    by (exists (get1 b c); split; [now left|exists 1%Z; ring]).
  assert (Hterm : exact = true -> forall j, (j < terms)%nat -> has_part (biased_parts terms parts W b t c) (g j * F2R (get2 W j c))).
  { intros He j Hj. destruct (proj1 Hl He) as [Hbef _]. destruct (Hbefore Hbef j Hj) as [_ [z Hz]].
    exists (Fmult (get2 parts t j) (get2 W j c)). split; [right; now apply (in_row terms j (fun j => Fmult (get2 parts t j) (get2 W j c)))|].
    exists z. rewrite F2R_mult, Hz. ring. }
  split.
  - apply (product_plus_in_layer f _ _ _ _ _ _ _ g (fun j => F2R (get2 W j c)) cg (fun j => F2R (get2 W j c))
      (fun j => F2R (get2 wrong t j)) (fun _ => 0) _ y Hl); try assumption.
    + intros j Hj. split; [now apply Hg|apply HW].
    + intros Hbef j Hj. split; [|reflexivity]. now apply Hbefore.
    + rewrite F2R_plus, F2R_abs, F2R_fsum. apply Rplus_le_compat_r, sum_le. intros j Hj.
      rewrite F2R_mult, F2R_plus, F2R_abs, Rplus_0_r. apply Rmult_le_compat_r; [apply Rabs_pos|]. specialize (Hbound j Hj). lra.
    + rewrite F2R_fsum. apply sum_le. intros j Hj. rewrite F2R_mult, F2R_abs. lra.
  - intros He. split; [exact (no_error _ _ _ _ _ _ _ Hl He)|]. destruct (proj1 Hl He) as [_ Hparts].
    apply multiple_plus; [apply multiple_sum; intros j Hj|]; apply part_multiple; try assumption. now apply Hterm.
Qed.

(* ---- A sequence ----------------------------------------------------------------------------------------------------------------------- *)

Variable xs : list nat.
Variable i : nat.
Hypothesis sequence : is_sequence m xs.
Hypothesis i_in_range : (i < L m)%nat.
Let t := nth i xs O.

Lemma slot_below_T (j : nat) : (j < L m)%nat -> (nth j xs O < T m)%nat.
Proof. destruct sequence as [Hl Hall]. intros Hj. rewrite Forall_forall in Hall. apply Hall, nth_In. lia. Qed.

Lemma t_below_T : (t < T m)%nat. Proof. now apply slot_below_T. Qed.

Lemma slots_are_most (g : nat -> binary) : sum (L m) (fun j => F2R (g (nth j xs O))) <= F2R (slots x g).
Proof.
  unfold slots. rewrite F2R_mult. unfold F2R at 2. cbn [Fnum Fexp bpow]. rewrite Rmult_1_r, <- INR_IZR_INZ.
  destruct (fmost_is_most (file_T x) g) as [_ H]. apply Rle_trans with (sum (L m) (fun _ => F2R (fmost (file_T x) g) * 1)).
  - apply sum_le. intros j Hj. rewrite Rmult_1_r. apply H. now apply slot_below_T.
  - rewrite sum_scale. apply Req_le. rewrite Rmult_comm. f_equal. change (L m) with (file_L x).
    induction (file_L x) as [|n IH]; [reflexivity|]. cbn [sum]. rewrite IH, S_INR. ring.
Qed.

Variables query : nat -> R.
Variable key : nat -> nat -> R.
Variables score mixed sums logits : nat -> R.
Hypothesis is_run : run op m xs i query key score mixed sums logits.

(* What a computed score is off by, and what the table is. *)
Definition score_error (j : nat) : R :=
  F2R (get2 (errors SL) t (nth j xs O)) - Rabs (F2R (get2 scores t (nth j xs O)) - score_of m t (nth j xs O)).

Lemma slot_score_stands (j : nat) : (j < L m)%nat -> holds (score_of m t (nth j xs O)) (score j) (score_error j) /\
  (is_exact SL = true -> F2R (get2 (errors SL) t (nth j xs O)) = 0).
Proof.
  intros Hj. pose proof t_below_T as Ht. pose proof (slot_below_T j Hj) as Hb. destruct is_run as (Hq & Hk & Hs & _). destruct (Hs j Hj) as (v & Hv & Hy).
  destruct (product_is_right t (nth j xs O) Ht Hb query (key j) v) as [H1 H2].
  - exact Hq.
  - intros c Hc. now apply Hk.
  - exact Hv.
  - now apply (score_stands t (nth j xs O) Ht Hb v).
Qed.

Lemma slot_score_is_near (j : nat) : (j < L m)%nat -> let s := nth j xs O in
  Rabs (F2R (get2 scores t s) - score_of m t s) <= F2R (get2 (errors SL) t s) /\ 0 <= score_error j /\
  Rabs (score_of m t s) + score_error j <= F2R (reach scores (errors SL) t s).
Proof.
  intros Hj s. destruct (stands_still f _ _ _ (proj1 (slot_score_stands j Hj))) as [_ H]. rewrite F2R_reach. unfold score_error in *. fold s in H |- *.
  pose proof (Rabs_pos (score j - score_of m t s)). pose proof (Rabs_pos (F2R (get2 scores t s) - score_of m t s)).
  pose proof (Rabs_triang_inv (score_of m t s) (F2R (get2 scores t s))) as Ht. rewrite Rabs_minus_sym in Ht. lra.
Qed.

Lemma slot_score_is (j : nat) : (j < L m)%nat -> is_exact SL = true -> F2R (get2 scores t (nth j xs O)) = score_of m t (nth j xs O) /\ score_error j = 0.
Proof.
  intros Hj He. destruct (slot_score_is_near j Hj) as (H1 & H2 & _). unfold score_error in *. rewrite (proj2 (slot_score_stands j Hj) He) in *.
  pose proof (Rabs_pos (F2R (get2 scores t (nth j xs O)) - score_of m t (nth j xs O))).
  assert (H0 : Rabs (F2R (get2 scores t (nth j xs O)) - score_of m t (nth j xs O)) = 0) by lra. split; [|lra].
  revert H0. unfold Rabs. destruct (Rcase_abs _); lra.
Qed.

Lemma length_xs : length xs = L m. Proof. apply sequence. Qed.

Lemma mixed_is_bounded (c : nat) : (c < d m)%nat -> Rabs (mixed_of m xs t c) <= F2R (get2 of_mixed t c).
Proof.
  intros Hc. pose proof t_below_T as Ht. unfold of_mixed, mixed_bound, mixed_size. rewrite get2_table by assumption. rewrite F2R_plus, F2R_abs. fold E. rewrite E_is.
  unfold mixed_of. rewrite length_xs. apply Rle_trans with (1 := Rabs_triang _ _). apply Rplus_le_compat_r.
  apply Rle_trans with (1 := Rabs_sum _ _). apply Rle_trans with (2 := slots_are_most _). apply sum_le. intros j Hj.
  destruct (slot_score_is_near j Hj) as (_ & H1 & H2). rewrite F2R_mult, F2R_abs, E_is, Rabs_mult. apply Rmult_le_compat_r; [apply Rabs_pos|lra].
Qed.

Lemma mixed_stands (c : nat) : (c < d m)%nat -> holds (mixed_of m xs t c) (mixed c) (F2R (get2 (errors M) t c)) /\
  (is_exact M = true -> F2R (get2 (errors M) t c) = 0 /\ multiple (F2R (get2 mixed_part t c)) (mixed_of m xs t c)).
Proof.
  intros Hc. pose proof t_below_T as Ht. destruct is_run as (_ & _ & _ & Hm & _). unfold M, mixed_layer in *.
  pose proof (layer_is_right _ _ _ _ _ _ _ _ t c (proj1 (proj2 layers_stay)) Ht Hc) as Hl. fold E in Hl.
  assert (Hown : has_part (mixed_parts x E scores t c) (embedding m t c))
    by (rewrite <- E_is; exists (get2 E t c); split; [now left|exists 1%Z; ring]).
  assert (Hterm : is_exact SL = true -> forall j, (j < L m)%nat ->
    has_part (mixed_parts x E scores t c) (score_of m t (nth j xs O) * embedding m (nth j xs O) c)).
  { intros He j Hj. pose proof (slot_below_T j Hj) as Hb. rewrite <- (proj1 (slot_score_is j Hj He)), <- E_is. apply product_has_part.
    right. now apply (in_row (T m) (nth j xs O) (fun s => Fmult (get2 scores t s) (get2 E s c))). }
  split; [|intros He; split; [exact (no_error _ _ _ _ _ _ _ Hl He)|]].
  - unfold mixed_of. rewrite length_xs.
    apply (product_plus_in_layer f _ _ _ _ _ _ _ (fun j => score_of m t (nth j xs O)) (fun j => embedding m (nth j xs O) c)
      score (fun j => embedding m (nth j xs O) c) score_error (fun _ => 0) _ (mixed c) Hl).
    + intros j Hj. split; [now apply slot_score_stands|apply E_stands].
    + apply E_stands.
    + intros He j Hj. split; [|reflexivity]. now apply slot_score_is.
    + now apply Hm.
    + unfold mixed_size. rewrite F2R_plus, F2R_abs, E_is. apply Rplus_le_compat_r. apply Rle_trans with (2 := slots_are_most _).
      apply sum_le. intros j Hj. rewrite F2R_mult, F2R_abs, E_is, Rplus_0_r. apply Rmult_le_compat_r; [apply Rabs_pos|now apply slot_score_is_near].
    + apply Rle_trans with (2 := slots_are_most _). apply sum_le. intros j Hj. rewrite F2R_mult, F2R_abs. fold E. rewrite E_is, Rmult_0_r, !Rplus_0_r.
      apply Rmult_le_compat_r; [apply Rabs_pos|]. unfold score_error. pose proof (Rabs_pos (F2R (get2 scores t (nth j xs O)) - score_of m t (nth j xs O))). lra.
    + intros He. apply Hterm. exact (proj1 (proj1 Hl He)).
    + exact Hown.
  - unfold mixed_part. rewrite get2_table by assumption. apply part_is_right; [now apply mixed_is_bounded|].
    destruct (proj1 Hl He) as [Hbefore Hparts]. unfold mixed_of. rewrite length_xs.
    apply multiple_plus; [apply multiple_sum; intros j Hj|]; apply part_multiple; try assumption. now apply Hterm.
Qed.

Lemma neuron_is_bounded (n : nat) : (n < p m)%nat -> Rabs (Rmax 0 (sum_of m xs t n)) <= F2R (get2 of_neurons t n).
Proof.
  intros Hn. pose proof t_below_T as Ht. unfold of_neurons, neuron_bound. rewrite get2_table by assumption.
  set (reads := table _ _ _). match goal with |- _ <= F2R (larger nothing ?y) => destruct (larger_is_larger nothing y) as [H0 H1] end.
  rewrite nothing_is_0 in H0. fold b1. rewrite Rabs_pos_eq by apply Rmax_l. apply Rmax_lub; [exact H0|]. apply Rle_trans with (2 := H1).
  rewrite !F2R_plus, b1_is, sum_is_linear, length_xs. apply Rplus_le_compat_r.
  assert (Hreads : forall s, (s < T m)%nat -> F2R (get2 reads s n) = sum (d m) (fun c => embedding m s c * at2 (W_1 m) c n)).
  { intros s Hs. unfold reads. rewrite get2_table by assumption. rewrite F2R_fsum. apply sum_ext. intros c _.
    rewrite F2R_mult. fold E W1. now rewrite E_is, W1_is. }
  rewrite Hreads by exact Ht. apply Rplus_le_compat_l. apply Rle_trans with (2 := slots_are_most _). apply sum_le. intros j Hj.
  destruct (slot_score_is_near j Hj) as [Hnear _]. rewrite F2R_plus, !F2R_mult, F2R_abs, <- Hreads by now apply slot_below_T.
  set (r := F2R (get2 reads _ n)) in *. set (c := F2R (get2 scores _ _)) in *. set (v := score_of m _ _) in *.
  replace (v * r) with (c * r + (v - c) * r) by ring. apply Rplus_le_compat_l. apply Rle_trans with (1 := Rle_abs _).
  rewrite Rabs_mult, Rabs_minus_sym. apply Rmult_le_compat_r; [apply Rabs_pos|exact Hnear].
Qed.

Lemma sum_is (n : nat) : sum (d m) (fun c => mixed_of m xs t c * F2R (get2 W1 c n)) + F2R (get1 b1 n) = sum_of m xs t n.
Proof. unfold sum_of. rewrite b1_is. f_equal. apply sum_ext. intros c _. now rewrite W1_is. Qed.

Lemma sum_stands (n : nat) : (n < p m)%nat -> holds (sum_of m xs t n) (sums n) (F2R (get2 (errors N) t n)) /\
  (is_exact N = true -> F2R (get2 (errors N) t n) = 0 /\ multiple (F2R (get2 neuron_part t n)) (Rmax 0 (sum_of m xs t n))).
Proof.
  intros Hn. pose proof t_below_T as Ht. destruct is_run as (_ & _ & _ & _ & Hs & _).
  destruct (biased_stands (is_exact M) (file_T x) (file_p x) (file_d x) of_mixed (errors M) mixed_part W1 b1 t n (mixed_of m xs t) mixed (sums n)
    (proj1 (proj2 (proj2 layers_stay))) Ht Hn) as [H1 H2]; rewrite ?sum_is in *.
  - intros c Hc. now apply mixed_stands.
  - intros He c Hc. now apply mixed_stands.
  - exact mixed_is_bounded.
  - intros. apply all_themselves. cbn; auto.
  - apply (all_themselves [b1] ltac:(cbn; auto 10) 0 n).
  - apply (same_product_plus _ _ (fun c => at2 (W_1 m) c n) _ (at1 (b_1 m) n)); [intros; now rewrite W1_is|now rewrite b1_is|now apply Hs].
  - split; [exact H1|]. intros He. destruct (H2 He) as [H3 H4]. split; [exact H3|]. unfold neuron_part. rewrite get2_table by assumption.
    apply part_is_right; [now apply neuron_is_bounded|]. now apply multiple_max.
Qed.

Lemma logit_stands (c : nat) : (c < classes m)%nat -> holds (logit_of m xs t c) (logits c) (F2R (get2 (errors OL) t c)).
Proof.
  intros Hc. pose proof t_below_T as Ht. destruct is_run as (_ & _ & _ & _ & _ & Hs).
  assert (Heq : sum (p m) (fun n => Rmax 0 (sum_of m xs t n) * F2R (get2 W2 n c)) + F2R (get1 b2 c) = logit_of m xs t c)
    by (unfold logit_of; rewrite b2_is; f_equal; apply sum_ext; intros n _; now rewrite W2_is).
  rewrite <- Heq. apply (biased_stands (is_exact N) (file_T x) (file_classes x) (file_p x) of_neurons (errors N) neuron_part W2 b2 t c
    (fun n => Rmax 0 (sum_of m xs t n)) (fun n => Rmax 0 (sums n)) (logits c) (proj2 (proj2 (proj2 layers_stay))) Ht Hc).
  - intros n Hn. now apply relu_stands, sum_stands.
  - intros He n Hn. now apply sum_stands.
  - exact neuron_is_bounded.
  - intros. apply all_themselves. cbn; auto 10.
  - apply (all_themselves [b2] ltac:(cbn; auto 10) 0 c).
  - apply (same_product_plus _ _ (fun n => at2 (W_2 m) n c) _ (at1 (b_2 m) c)); [intros; now rewrite W2_is|now rewrite b2_is|].
    now apply Hs.
Qed.

Lemma run_stays : stays f m query key score mixed sums logits.
Proof.
  destruct is_run as (Hq & Hk & _). pose proof t_below_T as Ht. unfold stays. repeat split.
  - intros c Hc. apply (stands_still f _ _ _ (proj1 (query_stands t c (query c) Ht Hc (Hq c Hc)))).
  - intros s c Hs Hc. apply (stands_still f _ _ _ (proj1 (key_stands (nth s xs O) c (key s c) (slot_below_T s Hs) Hc (Hk s c Hs Hc)))).
  - intros s Hs. apply (stands_still f _ _ _ (proj1 (slot_score_stands s Hs))).
  - intros c Hc. apply (stands_still f _ _ _ (proj1 (mixed_stands c Hc))).
  - intros n Hn. apply (stands_still f _ _ _ (proj1 (sum_stands n Hn))).
  - intros c Hc. apply (stands_still f _ _ _ (logit_stands c Hc)).
Qed.

Lemma margin_is_left (margin shift : Z) (c c' : nat) (right other : R) : (0 <= shift)%Z -> (c < classes m)%nat -> (c' < classes m)%nat ->
  logit m xs i c' + IZR (margin + margin_of_errors x shift (snd (logit_errors f x))) / IZR (2 ^ shift) <= logit m xs i c ->
  reads op (logits c) right -> reads op (logits c') other -> other + IZR margin / IZR (2 ^ shift) <= right.
Proof.
  change (snd (logit_errors f x)) with (errors OL). intros Hshift Hc Hc' H Hr Ho. pose proof t_below_T as Ht. rewrite !(logit_is_of m) in H by assumption. fold t in H.
  apply (logit_stands c Hc) in Hr as [_ Hr]. apply (logit_stands c' Hc') in Ho as [_ Ho].
  unfold margin_of_errors in H. set (off := fmost _ _) in H.
  assert (Hoff : F2R (get2 (errors OL) t c) + F2R (get2 (errors OL) t c') <= F2R off).
  { destruct (fmost_is_most (file_T x) (fun t => Fmult (Float radix2 2 0) (fmost (file_classes x) (get2 (errors OL) t)))) as [_ H0]. specialize (H0 t Ht).
    destruct (fmost_is_most (file_classes x) (get2 (errors OL) t)) as [_ H1]. pose proof (H1 c Hc). pose proof (H1 c' Hc').
    cbn beta in H0. rewrite F2R_mult in H0. unfold off. change (F2R (Float radix2 2 0)) with (2 * 1) in H0. lra. }
  assert (Htwo : IZR (2 ^ shift) = bpow radix2 shift) by (apply (IZR_Zpower radix2); exact Hshift).
  assert (Hpos : 0 < bpow radix2 shift) by apply bpow_gt_0. rewrite Htwo in *.
  match type of H with _ + IZR (margin + ?n) / _ <= _ => set (over := n) in H end.
  assert (Hover : F2R off * bpow radix2 shift <= IZR over).
  { unfold over, F2R. rewrite Rmult_assoc, <- bpow_plus. destruct (Z.leb_spec 0 (Fexp off + shift)) as [He|He].
    - rewrite mult_IZR. change (2 ^ (Fexp off + shift))%Z with (Zpower radix2 (Fexp off + shift)). rewrite IZR_Zpower by exact He. lra.
    - set (n := (- (Fexp off + shift))%Z). replace (Fexp off + shift)%Z with (- n)%Z by (unfold n; ring). rewrite bpow_opp.
      assert (Hn : (0 < 2 ^ n)%Z) by (apply Z.pow_pos_nonneg; unfold n; lia). pose proof (Z.mul_div_le (- Fnum off) (2 ^ n) Hn) as Hdiv.
      apply IZR_le in Hdiv. rewrite mult_IZR, opp_IZR in Hdiv. rewrite opp_IZR.
      replace (IZR (2 ^ n)) with (bpow radix2 n) in Hdiv by (symmetry; apply (IZR_Zpower radix2); unfold n; lia).
      assert (Hb : 0 < bpow radix2 n) by apply bpow_gt_0. apply (Rmult_le_reg_r (bpow radix2 n)); [exact Hb|].
      rewrite Rmult_assoc, Rinv_l by lra. lra. }
  rewrite plus_IZR in H. unfold Rdiv in *. rewrite Rmult_plus_distr_r in H.
  assert (Hle : F2R off <= IZR over * / bpow radix2 shift).
  { apply (Rmult_le_reg_r (bpow radix2 shift)); [exact Hpos|]. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  revert Hr Ho. unfold Rabs. destruct (Rcase_abs _), (Rcase_abs _); lra.
Qed.
End File.

(* ---- The theorems ---------------------------------------------------------------------------------------------------------------------- *)

Lemma in_format_is_right (f : format) (x : file) (shift : Z) (shows : Z -> bool) : in_format f x shift shows = true ->
  all_of_format f x = true /\ root_stays f x = true /\ fst (logit_errors f x) = true /\
  shows (margin_of_errors x shift (snd (logit_errors f x))) = true.
Proof.
  unfold in_format. cbv zeta. destruct (all_of_format f x); [|discriminate]. destruct (root_stays f x); [|discriminate].
  cbn [andb]. destruct (fst (logit_errors f x)); [|discriminate]. now repeat split.
Qed.

Lemma shift_not_negative (x : file) (s : Z) (how : effort) (margins : list Z) (shift : Z) :
  answers_are_right x s how margins shift = true -> (0 <= shift)%Z.
Proof.
  unfold answers_are_right. rewrite !andb_true_iff, !Z.leb_le. intros [[[[[_ fit] _] Hs] _] _]. pose proof (s_not_negative x s fit). lia.
Qed.

Theorem check_parity_in_correct (f : format) (x : file) (s : Z) (how : effort) (margin shift : Z) :
  check_parity_in f x s how margin shift = true -> file_tells_parity_in f x margin shift.
Proof.
  unfold check_parity_in. rewrite andb_true_iff, Z.ltb_lt. intros [Hmargin H]. apply in_format_is_right in H as (Hformat & Hroot & Hstay & H).
  assert (Hshift : (0 <= shift)%Z).
  { unfold check_parity in H. rewrite !andb_true_iff in H. exact (shift_not_negative _ _ _ _ _ (proj2 H)). }
  apply check_parity_correct in H as (Hk & Hsoft & Hnumbers & Hshaped & Hpos & Hreal).
  refine (conj Hk (conj Hsoft (conj Hnumbers (conj Hshaped (conj _ (conj _ _)))))).
  - apply Rdiv_lt_0_compat; [now apply IZR_lt|]. apply IZR_lt, Z.pow_pos_nonneg; lia.
  - apply weights_stay_in_format; auto.
  - assert (Hclasses : file_classes x = 2%nat) by (unfold well_shaped in Hshaped; cbn in Hshaped; rewrite Hk in Hshaped; tauto).
    intros xs Hseq i Hi query key score mixed sums logits Hrun. split; [now apply (run_stays f x) with (xs := xs) (i := i); auto|].
    intros right other Hr Ho. pose proof (Nat.mod_upper_bound (count xs i) 2 ltac:(lia)) as Hmod.
    eapply (margin_is_left f x) with (xs := xs) (i := i) (query := query) (key := key) (score := score) (mixed := mixed) (sums := sums)
      (c := (count xs i mod 2)%nat) (c' := (1 - count xs i mod 2)%nat); try eassumption; auto;
      try (change (classes (stored_model x)) with (file_classes x); lia).
Qed.

Theorem check_in_correct (f : format) (x : file) (s : Z) (how : effort) (margins : list Z) (shift : Z) :
  check_in f x s how margins shift = true -> file_counts_in f x margins shift.
Proof.
  unfold check_in. rewrite !andb_true_iff. intros [[Hdot Hmargins] H]. apply in_format_is_right in H as (Hformat & Hroot & Hstay & H).
  assert (Hk : file_kind x = Dot /\ file_softmax x = false).
  { unfold is_dot in Hdot. destruct (file_kind x); try discriminate. split; [reflexivity|now apply negb_true_iff]. }
  destruct Hk as [Hk Hsoft].
  assert (Hshift : (0 <= shift)%Z) by (unfold check in H; rewrite andb_true_iff in H; exact (shift_not_negative _ _ _ _ _ (proj2 H))).
  apply check_correct in H as (Hnumbers & Hshaped & _ & Hreal & _).
  unfold margins_are_positive in Hmargins. rewrite forallb_forall in Hmargins.
  assert (Hpos : forall k, (1 <= k <= file_L x)%nat -> (0 < nth (k - 1) margins 0)%Z).
  { intros k Hkin. specialize (Hmargins k). rewrite in_seq, Z.ltb_lt in Hmargins. apply Hmargins. lia. }
  refine (conj Hk (conj Hsoft (conj Hnumbers (conj Hshaped (conj _ (conj _ _)))))).
  - intros k Hkin. apply Rdiv_lt_0_compat; [now apply IZR_lt, Hpos|]. apply IZR_lt, Z.pow_pos_nonneg; lia.
  - apply weights_stay_in_format; auto.
  - intros xs Hseq i Hi query key score mixed sums logits Hrun. split; [now apply (run_stays f x) with (xs := xs) (i := i); auto|].
    intros c Hc Hne right other Hr Ho. pose proof (count_is_between x xs i Hseq Hi) as Hcount.
    eapply (margin_is_left f x) with (xs := xs) (i := i) (query := query) (key := key) (score := score) (mixed := mixed) (sums := sums)
      (c := (count xs i - file_first_count x)%nat) (c' := c); try eassumption; auto.
    + unfold well_shaped in Hshaped. cbn in *. rewrite Hk in Hshaped. lia.
    + specialize (Hreal xs Hseq i Hi c Hc Hne). unfold margin_of in Hreal.
      assert (Hlen : (count xs i - 1 < length margins)%nat).
      { destruct (Nat.lt_ge_cases (count xs i - 1) (length margins)) as [Hlt|Hge]; [exact Hlt|].
        specialize (Hpos (count xs i) Hcount). rewrite nth_overflow in Hpos by exact Hge. lia. }
      rewrite (nth_map_in _ _ _ 0%Z) in Hreal by exact Hlen. exact Hreal.
Qed.
