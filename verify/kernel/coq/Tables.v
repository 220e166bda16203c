(* The integer tables of a check are the model's numbers over a power of two. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Bool.
From Weightproof Require Import Model Stored Sums Reduction Forms Regions Queries Words Exponentials Check.
Import ListNotations.
Open Scope R_scope.

(* ---- Lists ------------------------------------------------------------------------------------------------------------- *)

Lemma zdot_sum (u v : list Z) (n : nat) :
  length u = n -> IZR (zdot u v) = sum n (fun j => IZR (zat1 u j) * IZR (zat1 v j)).
Proof.
  intros <-. revert v. induction u as [|a u IH]; intros v; [reflexivity|].
  cbn [length]. rewrite sum_shift. destruct v as [|b v].
  - cbn [zdot]. rewrite (sum_ext _ _ (fun _ => 0)).
    + rewrite sum_zero. unfold zat1. simpl. lra.
    + intros j _. unfold zat1. simpl. lra.
  - cbn [zdot]. rewrite plus_IZR, mult_IZR, IH. reflexivity.
Qed.

Lemma zat1_column (W : list (list Z)) (n j : nat) : zat1 (column n W) j = zat2 W j n.
Proof.
  unfold zat2, column. rewrite <- (map_nth (fun row => zat1 row n) W [] j).
  unfold zat1 at 1. f_equal. unfold zat1. now destruct n.
Qed.

Lemma nth_map_in {X Y : Type} (f : X -> Y) (l : list X) (i : nat) (x0 : X) (y0 : Y) :
  (i < length l)%nat -> nth i (map f l) y0 = f (nth i l x0).
Proof. intros H. rewrite (nth_indep _ _ (f x0)) by now rewrite map_length. apply map_nth. Qed.

Lemma zat2_products (rows W : list (list Z)) (k i c : nat) :
  (i < length rows)%nat -> (c < k)%nat ->
  zat2 (products rows (columns k W)) i c = zdot (nth i rows []) (column c W).
Proof.
  intros Hi Hc. unfold zat2, products. rewrite (nth_map_in _ _ _ []) by assumption.
  unfold zat1. rewrite (nth_map_in _ _ _ []) by (unfold columns; rewrite map_length, seq_length; assumption).
  unfold columns. now rewrite nth_map_seq.
Qed.

Lemma length_nth_row (n : nat) (M : list (list Z)) (i : nat) :
  Forall (fun row => length row = n) M -> (i < length M)%nat -> length (nth i M []) = n.
Proof. intros H Hi. rewrite Forall_forall in H. apply H, nth_In, Hi. Qed.

Lemma map_nth_seq {X Y : Type} (f : X -> Y) (l : list X) (x0 : X) :
  map f l = map (fun n => f (nth n l x0)) (seq 0 (length l)).
Proof.
  induction l as [|a l IH]; [reflexivity|]. simpl. f_equal. rewrite <- seq_shift, map_map. exact IH.
Qed.

(* ---- Shapes -------------------------------------------------------------------------------------------------------------- *)

Lemma has_length_map {X Y : Type} (n : nat) (f : X -> Y) (l : list X) : has_length n l = true -> length (map f l) = n.
Proof. unfold has_length. rewrite Nat.eqb_eq, map_length. easy. Qed.

Lemma has_shape_map {X Y : Type} (n k : nat) (f : X -> Y) (M : list (list X)) :
  has_shape n k M = true -> length (map (map f) M) = n /\ Forall (fun row => length row = k) (map (map f) M).
Proof.
  unfold has_shape. rewrite andb_true_iff. intros [Hn Hk]. split; [now apply has_length_map|].
  rewrite forallb_forall in Hk. apply Forall_forall. intros row Hrow.
  apply in_map_iff in Hrow as [row' [<- Hin]]. now apply has_length_map, Hk.
Qed.

Section Tables.
Variable x : file.
Variable s : Z.
Hypothesis shapes : shapes_hold x = true.
Hypothesis fit : words_fit x s = true.

Let m := stored_model x.
Let one := IZR (2 ^ s).

Lemma s_not_negative : (0 <= s)%Z.
Proof. unfold words_fit in fit. rewrite !andb_true_iff, Z.leb_le in fit. tauto. Qed.

Lemma one_positive : 0 < one.
Proof. apply IZR_lt, Z.pow_pos_nonneg; [lia|apply s_not_negative]. Qed.

Lemma stored_is_well_shaped : well_shaped m.
Proof.
  unfold shapes_hold in shapes. rewrite !andb_true_iff in shapes.
  unfold well_shaped, shape2, shape1, m, stored_model, matrix_of, vector_of; cbn.
  destruct shapes as [[[[[[[HE Hmix] HW1] Hb1] HW2] Hb2] Hcl] Hd]. apply Nat.leb_le in Hd.
  fold (vector_of (file_format x)).
  assert (H2 : forall n k M, has_shape n k M = true ->
    length (map (vector_of (file_format x)) M) = n /\
    Forall (fun v => length v = k) (map (vector_of (file_format x)) M)) by (intros n k M; apply has_shape_map).
  assert (H1 : forall n (v : list Z), has_length n v = true -> length (map (value (file_format x)) v) = n)
    by (intros n v; apply has_length_map).
  refine (conj (H2 _ _ _ HE) (conj _ (conj (H2 _ _ _ HW1) (conj (H1 _ _ Hb1) (conj (H2 _ _ _ HW2) (conj (H1 _ _ Hb2)
    (conj _ Hd))))))).
  - destruct (file_kind x); rewrite ?andb_true_iff in Hmix; auto; destruct Hmix; auto. destruct H; auto.
  - destruct (file_kind x); rewrite ?andb_true_iff, ?Nat.eqb_eq, ?Nat.leb_le, ?Nat.ltb_lt in Hcl; auto.
Qed.

Lemma words_are_numbers : Forall (is_number (file_format x)) (words x).
Proof.
  unfold words_fit in fit. rewrite !andb_true_iff in fit.
  assert (H1 : forall l, all_fit1 (file_format x) s l = true -> Forall (is_number (file_format x)) l).
  { intros l. unfold all_fit1. rewrite forallb_forall. intros H. apply Forall_forall. intros w Hw.
    now apply (fits_is_number _ s), H. }
  assert (H2 : forall M, all_fit2 (file_format x) s M = true -> Forall (is_number (file_format x)) (concat M)).
  { intros M. unfold all_fit2. rewrite forallb_forall. intros H. apply Forall_concat, Forall_forall. intros l Hl. apply H1, H, Hl. }
  unfold words. rewrite !concat_app, !Forall_app. cbn [concat]. rewrite !app_nil_r. repeat split; (apply H2 || apply H1); tauto.
Qed.

(* ---- Embeddings -------------------------------------------------------------------------------------------------------------- *)

(* Tokens, and BOS as one more. *)
Definition all_tokens : nat := (T m + match kind m with Bos => 1 | _ => 0 end)%nat.

Lemma tokens_table_shape :
  length (tokens_table x s) = all_tokens /\ Forall (fun row => length row = d m) (tokens_table x s).
Proof.
  unfold shapes_hold in shapes. rewrite !andb_true_iff in shapes.
  destruct shapes as [[[[[[[HE Hmix] _] _] _] _] _] _].
  assert (Hlen : length (integers2 (file_format x) s (E_words x)) = file_T x)
    by exact (proj1 (has_shape_map _ _ (integer (file_format x) s) _ HE)).
  assert (Hrows : Forall (fun row => length row = file_d x) (integers2 (file_format x) s (E_words x)))
    by exact (proj2 (has_shape_map _ _ (integer (file_format x) s) _ HE)).
  unfold tokens_table, all_tokens, m, stored_model; cbn [T kind d].
  rewrite app_length, Hlen.
  destruct (file_kind x); cbn; rewrite ?app_nil_r; split; try lia; try exact Hrows.
  rewrite !andb_true_iff in Hmix. apply Forall_app. split; [exact Hrows|].
  constructor; [|constructor]. now apply has_length_map.
Qed.

Lemma embedding_is_stored (k c : nat) : (k < all_tokens)%nat ->
  index_embedding m k c = IZR (zat2 (tokens_table x s) k c) / one.
Proof.
  intros Hk. pose proof s_not_negative as Hs.
  unfold words_fit in fit. rewrite !andb_true_iff in fit.
  unfold shapes_hold in shapes. rewrite !andb_true_iff in shapes.
  assert (HE : length (integers2 (file_format x) s (E_words x)) = T m).
  { unfold integers2. destruct shapes as [[[[[[[HE _] _] _] _] _] _] _].
    unfold has_shape in HE. apply andb_true_iff in HE as [HE _]. unfold has_length in HE. apply Nat.eqb_eq in HE.
    rewrite map_length. exact HE. }
  unfold index_embedding, all_tokens, embedding, tokens_table, zat2 in *. unfold m in *. cbn [kind E e_BOS T stored_model] in *.
  assert (Hrow : (k < file_T x)%nat ->
    at2 (matrix_of (file_format x) (E_words x)) k c = IZR (zat1 (nth k (integers2 (file_format x) s (E_words x)) []) c) / one).
  { intros _. apply at2_matrix_of; tauto. }
  destruct (file_kind x); rewrite ?app_nil_r; try (apply Hrow; lia).
  destruct (Nat.eqb_spec k (file_T x)) as [->|Hne].
  - rewrite app_nth2 by lia. rewrite HE, Nat.sub_diag. cbn [nth]. apply at1_vector_of; tauto.
  - rewrite app_nth1 by lia. apply Hrow. lia.
Qed.

(* ---- What neurons read -------------------------------------------------------------------------------------------------------- *)

Definition neuron_form (n : nat) : zform := nth n (neuron_forms x s) no_form.

Lemma reads_is_stored (n k : nat) : (n < p m)%nat -> (k < all_tokens)%nat ->
  reads m n k = IZR (zat (fst (neuron_form n)) k) / (one * one).
Proof.
  intros Hn Hk. pose proof one_positive as Hone. pose proof s_not_negative as Hs.
  destruct tokens_table_shape as [Hlen Hrows].
  unfold neuron_form, neuron_forms, m in *. cbn [p stored_model] in *. rewrite nth_map_seq by assumption. cbn [fst].
  unfold zat. rewrite (nth_map_in _ _ _ []) by lia.
  unfold columns. rewrite nth_map_seq by assumption.
  rewrite (zdot_sum _ _ (d (stored_model x))) by (apply length_nth_row; [assumption|lia]).
  unfold reads, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros c _.
  rewrite embedding_is_stored by assumption. rewrite zat1_column.
  cbn [W_1 stored_model]. rewrite (at2_matrix_of _ s) by (try assumption; unfold words_fit in fit; rewrite !andb_true_iff in fit; tauto).
  unfold zat2. fold one. field. lra.
Qed.

Lemma bias_is_stored (n : nat) : (n < p m)%nat ->
  at1 (b_1 m) n = IZR (snd (neuron_form n)) / (one * one).
Proof.
  intros Hn. pose proof one_positive as Hone. pose proof s_not_negative as Hs.
  unfold neuron_form, neuron_forms, m in *. cbn [p b_1 stored_model] in *. rewrite nth_map_seq by assumption. cbn [snd].
  rewrite (at1_vector_of _ s) by (try assumption; unfold words_fit in fit; rewrite !andb_true_iff in fit; tauto).
  rewrite mult_IZR. fold one. field. lra.
Qed.

(* ---- Scores ------------------------------------------------------------------------------------------------------------------------ *)

Lemma projection_is_stored (W : list (list Z)) (k c : nat) :
  all_fit2 (file_format x) s W = true -> (k < all_tokens)%nat -> (c < d m)%nat ->
  times m (index_embedding m k) (matrix_of (file_format x) W) c
  = IZR (zat2 (products (tokens_table x s) (columns (d m) (integers2 (file_format x) s W))) k c) / (one * one).
Proof.
  intros HW Hk Hc. pose proof one_positive as Hone. pose proof s_not_negative as Hs.
  destruct tokens_table_shape as [Hlen Hrows].
  rewrite zat2_products by (assumption || lia).
  rewrite (zdot_sum _ _ (d m)) by (apply length_nth_row; [assumption|lia]).
  unfold times, Rdiv. rewrite <- sum_scale_right. apply sum_ext. intros j _.
  rewrite embedding_is_stored, (at2_matrix_of _ s) by assumption. rewrite zat1_column. fold one. unfold zat2. field. lra.
Qed.

Lemma length_products (rows cols : list (list Z)) : length (products rows cols) = length rows.
Proof. apply map_length. Qed.

Lemma length_products_row (rows cols : list (list Z)) (i : nat) :
  (i < length rows)%nat -> length (nth i (products rows cols) []) = length cols.
Proof. intros H. unfold products. rewrite (nth_map_in _ _ _ []) by assumption. apply map_length. Qed.

Lemma score_is_stored (t k : nat) : kind m <> Lin -> (t < all_tokens)%nat -> (k < all_tokens)%nat ->
  score m (index_embedding m t) (index_embedding m k)
  = IZR (zat2 (scores_table x s) t k) / ((one * one * (one * one)) * root m).
Proof.
  intros Hkind Ht Hk. pose proof one_positive as Hone. pose proof s_not_negative as Hs.
  destruct tokens_table_shape as [Hlen Hrows].
  assert (Hd : 0 < root m).
  { unfold root. pose proof stored_is_well_shaped as Hw. unfold well_shaped in Hw.
    destruct (kind m); try lra; apply sqrt_lt_R0, lt_0_INR; lia. }
  unfold score. replace (zat2 (scores_table x s) t k) with
    (zdot (nth t (products (tokens_table x s) (columns (d m) (integers2 (file_format x) s (W_Q_words x)))) [])
          (nth k (products (tokens_table x s) (columns (d m) (integers2 (file_format x) s (W_K_words x)))) [])).
  2: { unfold scores_table, zat2. set (Q := products _ _). set (K := products _ _).
       unfold products. rewrite (nth_map_in _ _ _ []) by (unfold Q; rewrite length_products; lia).
       unfold zat1. now rewrite (nth_map_in _ _ _ []) by (unfold K; rewrite length_products; lia). }
  rewrite (zdot_sum _ _ (d m)).
  2: { rewrite length_products_row by lia. unfold columns. now rewrite map_length, seq_length. }
  unfold Rdiv. rewrite Rinv_mult.
  rewrite <- Rmult_assoc. f_equal. rewrite <- sum_scale_right. apply sum_ext. intros c Hc.
  change (W_Q m) with (matrix_of (file_format x) (W_Q_words x)).
  change (W_K m) with (matrix_of (file_format x) (W_K_words x)).
  assert (HQK : all_fit2 (file_format x) s (W_Q_words x) = true /\ all_fit2 (file_format x) s (W_K_words x) = true)
    by (unfold words_fit in fit; rewrite !andb_true_iff in fit; tauto).
  rewrite !projection_is_stored by (tauto || assumption). unfold zat2. field. lra.
Qed.
End Tables.
