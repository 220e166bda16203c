(* Evaluations in a format, in any order: which logits a dot model may compute, and that they are right for a whole family.

   evaluates m x i logits says that these logits may come out at position i of x: every operation gives a result that the
   arithmetic allows, sums are taken in any order and grouping, products are fused with additions or not, and biases and
   the residual are added afterwards or are one more term. any_order_counts: the dot models of A-4.2 count whatever comes
   out, since all that is added up is whole and small. floats_count: so they do in every format of binary floats. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Permutation.
From Flocq Require Import Core.
From Weightproof Require Import Model Sums Regions General AnyOrder.
Import ListNotations.
Open Scope R_scope.

(* ---- What may come out ----------------------------------------------------------------------------------------------------- *)

Section Evaluation.
Variable result : R -> R -> Prop.   (* result v r: an operation whose exact value is v may give r *)
Variable roots : nat -> R -> Prop.  (* roots d r: r may stand for sqrt d *)
Variable may_multiply : Prop.       (* may division by sqrt d be multiplication by a rounded reciprocal? *)

(* A sum of products; a sum of none is 0. Adding 0 to a number that is there already is no operation. *)
Inductive dots : list (R * R) -> R -> Prop :=
| dots_none : dots [] 0
| dots_one : forall a b r, result (a * b) r -> dots [(a, b)] r
| dots_two : forall k l r s t, k <> [] -> l <> [] -> dots k r -> dots l s -> result (r + s) t -> dots (k ++ l) t
| dots_fused : forall a b l r t, dots l r -> result (a * b + r) t -> dots ((a, b) :: l) t
| dots_in_any_order : forall k l r, Permutation k l -> dots k r -> dots l r.

(* The products of n entries of a row and a column. *)
Definition products (n : nat) (f g : nat -> R) : list (R * R) := map (fun c => (f c, g c)) (seq 0 n).

(* Such a sum and one more number, a bias or the residual. *)
Definition dots_plus (l : list (R * R)) (b r : R) : Prop :=
  (exists y, dots l y /\ result (y + b) r) \/ dots ((1, b) :: l) r.

(* v / sqrt d. *)
Definition scaled (d : nat) (v r : R) : Prop := exists root, roots d root /\
  (result (v / root) r \/ may_multiply /\ exists inverse, result (/ root) inverse /\ result (v * inverse) r).

(* The query of position i, all keys, the scores, the mixed token, the neurons, and the logits of a dot model. *)
Definition evaluates (m : model) (x : list nat) (i : nat) (logits : nat -> R) : Prop :=
  let embedded j := embedding m (nth j x O) in
  exists (query : nat -> R) (key : nat -> nat -> R) (scores mixed neurons : nat -> R),
  (forall c, (c < d m)%nat -> dots (products (d m) (embedded i) (fun j => at2 (W_Q m) j c)) (query c)) /\
  (forall s c, (s < L m)%nat -> (c < d m)%nat -> dots (products (d m) (embedded s) (fun j => at2 (W_K m) j c)) (key s c)) /\
  (forall s, (s < L m)%nat -> exists v, dots (products (d m) query (key s)) v /\ scaled (d m) v (scores s)) /\
  (forall c, (c < d m)%nat -> dots_plus (products (L m) scores (fun s => embedded s c)) (embedded i c) (mixed c)) /\
  (forall n, (n < p m)%nat -> exists y,
     dots_plus (products (d m) mixed (fun c => at2 (W_1 m) c n)) (at1 (b_1 m) n) y /\ neurons n = Rmax 0 y) /\
  (forall c, (c < classes m)%nat -> dots_plus (products (p m) neurons (fun n => at2 (W_2 m) n c)) (at1 (b_2 m) c) (logits c)).

(* Whatever comes out at any position of any sequence, the right class leads by the margin. *)
Definition counts_in_any_order (m : model) (margin : R) : Prop :=
  forall x, is_sequence m x -> forall i, (i < L m)%nat -> forall logits, evaluates m x i logits ->
  forall c, (c < classes m)%nat -> (c + first_count m <> count x i)%nat ->
  logits c + margin <= logits (count x i - first_count m)%nat.

(* There is an evaluation wherever operations have results: nothing below is about nothing. *)
Theorem some_evaluation (op : R -> R) (m : model) (root : R) (x : list nat) (i : nat) :
  (forall v, result v (op v)) -> roots (d m) root -> exists logits, evaluates m x i logits.
Proof.
  intros Hop Hroot. set (sum_of := fix sum_of l := match l with [] => 0 | (a, b) :: l' => op (a * b + sum_of l') end).
  assert (Hdots : forall l, dots l (sum_of l)).
  { induction l as [|[a b] l IH]; [constructor|]. apply (dots_fused a b l (sum_of l)); [exact IH|apply Hop]. }
  assert (Hplus : forall l b, dots_plus l b (op (sum_of l + b))) by (intros l b; left; exists (sum_of l); now split).
  eexists. do 5 eexists. repeat split; intros.
  - apply Hdots.
  - apply Hdots.
  - eexists. split; [apply Hdots|]. exists root. split; [exact Hroot|]. left. apply Hop.
  - apply Hplus.
  - eexists. split; [apply Hplus|reflexivity].
  - apply Hplus.
Qed.

(* ---- Sums that lose nothing ------------------------------------------------------------------------------------------------- *)

Definition value_of_dots (l : list (R * R)) : R := total (map (fun '(a, b) => a * b) l).
Definition size_of_dots (l : list (R * R)) : R := total (map (fun '(a, b) => Rabs (a * b)) l).

(* Multiples of g up to `most` are kept by every operation whose exact value they are. *)
Definition keeps (g most : R) : Prop :=
  forall (z : Z) r, Rabs (g * IZR z) <= most -> result (g * IZR z) r -> r = g * IZR z.
Definition multiple (g v : R) : Prop := exists z : Z, v = g * IZR z.

Lemma dots_are_exact (g most : R) : keeps g most -> forall l r, dots l r ->
  Forall (fun '(a, b) => multiple g (a * b)) l -> size_of_dots l <= most ->
  r = value_of_dots l /\ multiple g r /\ Rabs r <= size_of_dots l.
Proof.
  intros Hk l r. unfold value_of_dots, size_of_dots.
  induction 1 as [|a b r H|k l r s t _ _ Hdk IHk Hdl IHl H|a b l r t Hd IH H|k l r Hp Hd IH]; intros Hf Hs.
  - cbn. rewrite Rabs_R0. repeat split; try lra. exists 0%Z. simpl. lra.
  - assert (Hm : multiple g (a * b)) by exact (Forall_inv Hf). destruct Hm as [z Hz]. cbn [map total fold_right] in *.
    assert (r = a * b) as -> by (rewrite Hz in *; apply Hk; [lra|exact H]). repeat split; try lra. now exists z.
  - apply Forall_app in Hf as [Hfk Hfl]. rewrite !map_app, !total_app in *.
    assert (Hpos : forall k : list (R * R), 0 <= total (map (fun '(a, b) => Rabs (a * b)) k)).
    { clear. induction k as [|[a b] k IH]; [cbn; lra|]. change (0 <= Rabs (a * b) + total (map (fun '(a, b) => Rabs (a * b)) k)).
      pose proof (Rabs_pos (a * b)). lra. }
    pose proof (Hpos k). pose proof (Hpos l).
    destruct (IHk Hfk ltac:(lra)) as (-> & [y Hy] & Hky). destruct (IHl Hfl ltac:(lra)) as (-> & [z Hz] & Hlz).
    rewrite Hy, Hz in *. assert (Hyz : g * IZR y + g * IZR z = g * IZR (y + z)) by (rewrite plus_IZR; ring).
    pose proof (Rabs_triang (g * IZR y) (g * IZR z)) as Htri. rewrite Hyz in *.
    assert (t = g * IZR (y + z)) as -> by (apply Hk; [lra|exact H]). repeat split; try lra. now exists (y + z)%Z.
  - assert (Hm : multiple g (a * b)) by exact (Forall_inv Hf). destruct Hm as [z Hz]. pose proof (Forall_inv_tail Hf) as Hfl.
    change (total (map (fun '(a, b) => a * b) ((a, b) :: l))) with (a * b + total (map (fun '(a, b) => a * b) l)) in *.
    change (total (map (fun '(a, b) => Rabs (a * b)) ((a, b) :: l))) with (Rabs (a * b) + total (map (fun '(a, b) => Rabs (a * b)) l)) in *.
    pose proof (Rabs_pos (a * b)). destruct (IH Hfl ltac:(lra)) as (-> & [y Hy] & Hly).
    rewrite Hy, Hz in *. assert (Hyz : g * IZR z + g * IZR y = g * IZR (z + y)) by (rewrite plus_IZR; ring).
    pose proof (Rabs_triang (g * IZR z) (g * IZR y)) as Htri. rewrite Hyz in *.
    assert (t = g * IZR (z + y)) as -> by (apply Hk; [lra|exact H]). repeat split; try lra. now exists (z + y)%Z.
  - rewrite <- (total_permutation _ _ _ Hp), <- (total_permutation (fun '(a, b) => Rabs (a * b)) _ _ Hp) in *.
    apply IH; [|exact Hs]. apply (Permutation_Forall' _ l k); [now apply Permutation_sym|exact Hf].
Qed.

Lemma dots_plus_are_exact (most : R) : keeps 1 most -> forall l b r, dots_plus l b r ->
  Forall (fun '(a, b) => multiple 1 (a * b)) l -> multiple 1 b -> size_of_dots l + Rabs b <= most -> r = value_of_dots l + b.
Proof.
  intros Hk l b r [[y [Hy Hr]]|Hr] Hf [z Hz] Hs.
  - pose proof (Rabs_pos b). destruct (dots_are_exact 1 most Hk l y Hy Hf ltac:(lra)) as (-> & [w Hw] & Habs).
    rewrite Hw, Hz in *. assert (Hwz : 1 * IZR w + 1 * IZR z = 1 * IZR (w + z)) by (rewrite plus_IZR; ring).
    pose proof (Rabs_triang (1 * IZR w) (1 * IZR z)) as Htri. rewrite Hwz in *. apply Hk; [lra|exact Hr].
  - destruct (dots_are_exact 1 most Hk ((1, b) :: l) r Hr) as (-> & _).
    + constructor; [|exact Hf]. exists z. lra.
    + change (Rabs (1 * b) + size_of_dots l <= most). rewrite Rmult_1_l. lra.
    + change (1 * b + value_of_dots l = value_of_dots l + b). lra.
Qed.

Lemma products_same (n : nat) (f g f' g' : nat -> R) :
  (forall c, (c < n)%nat -> f c = f' c /\ g c = g' c) -> products n f g = products n f' g'.
Proof. intros H. unfold products. apply map_ext_in. intros c Hc. apply in_seq in Hc. now destruct (H c ltac:(lia)) as [-> ->]. Qed.

Lemma products_multiple (g : R) (n : nat) (f h : nat -> R) :
  (forall c, (c < n)%nat -> multiple g (f c * h c)) -> Forall (fun '(a, b) => multiple g (a * b)) (products n f h).
Proof.
  intros H. unfold products. apply Forall_forall. intros p Hp. apply in_map_iff in Hp as [c [<- Hc]].
  apply in_seq in Hc. apply H. lia.
Qed.

Lemma value_of_products (n : nat) (f h : nat -> R) : value_of_dots (products n f h) = sum n (fun c => f c * h c).
Proof. unfold value_of_dots, products. now rewrite map_map, <- total_seq. Qed.

Lemma size_of_products (n : nat) (f h : nat -> R) : size_of_dots (products n f h) = sum n (fun c => Rabs (f c * h c)).
Proof. unfold size_of_dots, products. now rewrite map_map, <- total_seq. Qed.

Lemma products_exact (g most : R) (n : nat) (f h : nat -> R) (r : R) : keeps g most -> dots (products n f h) r ->
  (forall c, (c < n)%nat -> multiple g (f c * h c) /\ 0 <= f c * h c) -> sum n (fun c => f c * h c) <= most ->
  r = sum n (fun c => f c * h c).
Proof.
  intros Hk Hd H Hs. rewrite <- value_of_products.
  apply (dots_are_exact g most Hk _ _ Hd); [now apply products_multiple; intros; apply H|].
  rewrite size_of_products. rewrite (sum_ext _ _ (fun c => f c * h c)); [exact Hs|].
  intros c Hc. apply Rabs_pos_eq. now apply H.
Qed.

Lemma products_plus_exact (most : R) (n : nat) (f h : nat -> R) (b r : R) : keeps 1 most -> dots_plus (products n f h) b r ->
  (forall c, (c < n)%nat -> multiple 1 (f c * h c) /\ 0 <= f c * h c) -> multiple 1 b ->
  sum n (fun c => f c * h c) + Rabs b <= most -> r = sum n (fun c => f c * h c) + b.
Proof.
  intros Hk Hd H Hb Hs. rewrite <- value_of_products.
  apply (dots_plus_are_exact most Hk); [exact Hd|now apply products_multiple; intros; apply H|exact Hb|].
  rewrite size_of_products. rewrite (sum_ext _ _ (fun c => f c * h c)); [exact Hs|].
  intros c Hc. apply Rabs_pos_eq. now apply H.
Qed.

(* ---- The dot models of A-4.2, with a stored root ------------------------------------------------------------------------------ *)

Section Family.
Variable root : R.
Variables T L d : nat.
Hypothesis L_at_least_1 : (1 <= L)%nat.
Hypothesis T_at_most_d : (T <= d)%nat.
Hypothesis root_positive : 0 < root.

(* Whole numbers up to 3 L^2 lose nothing, 0 and the stored root lose nothing, and the stored root is the root. *)
Hypothesis keeps_integers : keeps 1 (3 * (INR L * INR L)).
Hypothesis keeps_root : keeps root root.
Hypothesis root_is_root : forall r, roots d r -> r = root.
Hypothesis reciprocal_is_exact : may_multiply -> forall i r, result (/ root) i -> result (root * i) r -> r = 1.

(* one_hot_model of General.v, with W_Q = root times the identity. *)
Definition rooted_model : model := {|
  kind := Dot; softmax := false; Model.T := T; Model.L := L; Model.d := d; p := 1; classes := L; first_count := 1;
  E := matrix_by T d delta; e_BOS := []; A := [];
  W_Q := matrix_by d d (fun i j => root * delta i j); W_K := matrix_by d d delta;
  W_1 := matrix_by d 1 (fun _ _ => 1); b_1 := vector_by 1 (fun _ => -1);
  W_2 := W_2_of L 1; b_2 := b_2_of L |}.

Lemma delta_is_whole (i j : nat) : multiple 1 (delta i j) /\ 0 <= delta i j <= 1.
Proof. unfold delta. destruct (i =? j)%nat; (split; [|lra]); [exists 1%Z|exists 0%Z]; simpl; lra. Qed.

Lemma whole_times (g a b : R) : multiple 1 a -> multiple g b -> multiple g (a * b).
Proof. intros [y ->] [z ->]. exists (y * z)%Z. rewrite mult_IZR. ring. Qed.

Lemma whole_nat (k : nat) : multiple 1 (INR k).
Proof. exists (Z.of_nat k). rewrite INR_IZR_INZ. ring. Qed.

Lemma one_is_small : 1 <= 3 * (INR L * INR L) /\ INR L + 2 <= 3 * (INR L * INR L) /\ 1 <= INR L.
Proof. apply le_INR in L_at_least_1. simpl in L_at_least_1. nra. Qed.

Lemma count_as_sum (x : list nat) (t : nat) : length x = L ->
  sum L (fun s => delta t (nth s x O)) = INR (count_occ Nat.eq_dec x t).
Proof.
  intros <-. assert (H : forall f : nat -> R, sum (length x) (fun s => f (nth s x O)) = total (map f x)).
  { intros f. rewrite <- total_seq. rewrite <- (map_map (fun s => nth s x O) f). f_equal. f_equal. clear.
    induction x as [|y x IH]; [reflexivity|]. cbn [length seq map]. f_equal. rewrite <- seq_shift, map_map. exact IH. }
  rewrite H. rewrite (total_ext _ (fun s => 0 + (if (s =? t)%nat then 1 else 0))).
  - rewrite total_by_count. lra.
  - intros s _. unfold delta. rewrite Nat.eqb_sym. lra.
Qed.

Section Position.
Variable x : list nat.
Variable i : nat.
Hypothesis sequence : is_sequence rooted_model x.
Hypothesis i_in_range : (i < L)%nat.
Let t := nth i x O.
Let k := count_occ Nat.eq_dec x t.

Lemma token_below (s : nat) : (s < L)%nat -> (nth s x O < d)%nat.
Proof.
  destruct sequence as [Hlen Hall]. cbn [Model.L Model.T rooted_model] in Hlen, Hall. intros Hs. rewrite Forall_forall in Hall.
  specialize (Hall (nth s x O) ltac:(apply nth_In; lia)). lia.
Qed.

Lemma embedded_is_one_hot (s c : nat) : (s < L)%nat -> (c < d)%nat -> embedding rooted_model (nth s x O) c = delta (nth s x O) c.
Proof.
  destruct sequence as [Hlen Hall]. cbn [Model.L Model.T rooted_model] in Hlen, Hall. intros Hs Hc. unfold embedding. cbn [E rooted_model]. rewrite Forall_forall in Hall.
  specialize (Hall (nth s x O) ltac:(apply nth_In; lia)). now rewrite at2_by by lia.
Qed.

Lemma count_at_most_L : 1 <= INR k <= INR L.
Proof.
  destruct sequence as [Hlen _]. cbn [Model.L rooted_model] in Hlen. unfold k, t. split.
  - change 1 with (INR 1). apply le_INR. apply count_occ_In, nth_In. lia.
  - apply le_INR. rewrite <- Hlen. apply count_occ_bound.
Qed.

Lemma query_is_exact (c : nat) (r : R) : (c < d)%nat ->
  dots (products d (embedding rooted_model t) (fun j => at2 (W_Q rooted_model) j c)) r -> r = root * delta t c.
Proof.
  intros Hc H. rewrite (products_same d _ _ (delta t) (fun j => root * delta j c)) in H.
  2: { intros j Hj. unfold t. rewrite embedded_is_one_hot by assumption. cbn [W_Q rooted_model]. now rewrite at2_by by lia. }
  pose proof (token_below i i_in_range) as Ht. fold t in Ht.
  assert (Hsum : sum d (fun j => delta t j * (root * delta j c)) = root * delta t c) by now rewrite sum_delta.
  rewrite <- Hsum. apply (products_exact root root d _ _ r keeps_root H).
  - intros j Hj. destruct (delta_is_whole t j) as [H1 H2], (delta_is_whole j c) as [[z H3] H4]. split; [|].
    + apply whole_times; [exact H1|]. exists z. rewrite H3. ring.
    + apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra.
  - rewrite Hsum. destruct (delta_is_whole t c) as [_ H2]. nra.
Qed.

Lemma key_is_exact (s c : nat) (r : R) : (s < L)%nat -> (c < d)%nat ->
  dots (products d (embedding rooted_model (nth s x O)) (fun j => at2 (W_K rooted_model) j c)) r -> r = delta (nth s x O) c.
Proof.
  intros Hs Hc H. rewrite (products_same d _ _ (delta (nth s x O)) (fun j => delta j c)) in H.
  2: { intros j Hj. rewrite embedded_is_one_hot by assumption. cbn [W_K rooted_model]. now rewrite at2_by by lia. }
  assert (Hsum : sum d (fun j => delta (nth s x O) j * delta j c) = delta (nth s x O) c)
    by (rewrite sum_delta; [reflexivity|now apply token_below]).
  rewrite <- Hsum. apply (products_exact 1 _ d _ _ r keeps_integers H).
  - intros j Hj. destruct (delta_is_whole (nth s x O) j) as [H1 H2], (delta_is_whole j c) as [H3 H4].
    split; [now apply whole_times|]. apply Rmult_le_pos; lra.
  - rewrite Hsum. destruct (delta_is_whole (nth s x O) c) as [_ H2]. pose proof one_is_small. lra.
Qed.

Lemma product_is_exact (s : nat) (v : R) : (s < L)%nat ->
  dots (products d (fun c => root * delta t c) (delta (nth s x O))) v -> v = root * delta t (nth s x O).
Proof.
  intros Hs H. pose proof (token_below s Hs) as Hb. pose proof (token_below i i_in_range) as Ht. fold t in Ht.
  assert (Hsum : sum d (fun c => root * delta t c * delta (nth s x O) c) = root * delta t (nth s x O)).
  { rewrite (sum_ext _ _ (fun c => root * (delta t c * delta (nth s x O) c))) by (intros; ring).
    rewrite sum_scale, sum_delta by assumption. unfold delta. now rewrite Nat.eqb_sym. }
  rewrite <- Hsum. apply (products_exact root root d _ _ v keeps_root H).
  - intros j Hj. destruct (delta_is_whole t j) as [[y H1] H2], (delta_is_whole (nth s x O) j) as [[w H3] H4]. split.
    + exists (y * w)%Z. rewrite H1, H3, mult_IZR. ring.
    + apply Rmult_le_pos; [|lra]. apply Rmult_le_pos; lra.
  - rewrite Hsum. destruct (delta_is_whole t (nth s x O)) as [_ H01]. nra.
Qed.

Lemma score_is_exact (s : nat) (v r : R) : (s < L)%nat ->
  dots (products d (fun c => root * delta t c) (delta (nth s x O))) v -> scaled d v r -> r = delta t (nth s x O).
Proof.
  intros Hs H Hr. apply product_is_exact in H; [|exact Hs]. subst v. pose proof one_is_small as (Hsmall & _).
  destruct (delta_is_whole t (nth s x O)) as [[z Hz] H01].
  destruct Hr as [q [Hq [Hr|[Hm [inverse [Hi Hr]]]]]]; apply root_is_root in Hq; subst q.
  - replace (root * delta t (nth s x O) / root) with (1 * IZR z) in Hr by (rewrite Hz; field; lra).
    rewrite Hz. apply keeps_integers; [rewrite Rabs_pos_eq; lra|exact Hr].
  - unfold delta in *. destruct (t =? nth s x O)%nat.
    + rewrite Rmult_1_r in Hr. now apply (reciprocal_is_exact Hm inverse).
    + replace (root * 0 * inverse) with (1 * IZR 0) in Hr by ring.
      replace 0 with (1 * IZR 0) by ring. apply keeps_integers; [rewrite Rmult_0_r, Rabs_R0; lra|exact Hr].
Qed.

Lemma mixed_is_exact (c : nat) (scores : nat -> R) (r : R) : (c < d)%nat -> (forall s, (s < L)%nat -> scores s = delta t (nth s x O)) ->
  dots_plus (products L scores (fun s => embedding rooted_model (nth s x O) c)) (embedding rooted_model t c) r ->
  r = delta t c * (1 + INR k).
Proof.
  intros Hc Hscores H. unfold t in H. rewrite embedded_is_one_hot in H by assumption. fold t in H.
  rewrite (products_same L _ _ (fun s => delta t (nth s x O)) (fun s => delta (nth s x O) c)) in H.
  2: { intros s Hs. now rewrite Hscores, embedded_is_one_hot by assumption. }
  assert (Hsum : sum L (fun s => delta t (nth s x O) * delta (nth s x O) c) = delta t c * INR k).
  { rewrite (sum_ext _ _ (fun s => delta t c * delta t (nth s x O))).
    - rewrite sum_scale. unfold k. now rewrite <- count_as_sum by apply sequence.
    - intros s Hs. unfold delta. destruct (Nat.eqb_spec t (nth s x O)) as [<-|]; ring. }
  pose proof one_is_small as (Hsmall & Hsmall2 & _). pose proof count_at_most_L as Hk. destruct (delta_is_whole t c) as [Hd Hd2].
  rewrite (products_plus_exact _ L _ _ _ r keeps_integers H), Hsum; [ring| |exact Hd|].
  - intros s Hs. destruct (delta_is_whole t (nth s x O)) as [H1 H2], (delta_is_whole (nth s x O) c) as [H3 H4].
    split; [now apply whole_times|]. apply Rmult_le_pos; lra.
  - rewrite Hsum, Rabs_pos_eq by lra. nra.
Qed.

Lemma neuron_is_exact (mixed : nat -> R) (r : R) : (forall c, (c < d)%nat -> mixed c = delta t c * (1 + INR k)) ->
  dots_plus (products d mixed (fun c => at2 (W_1 rooted_model) c 0)) (at1 (b_1 rooted_model) 0) r -> r = INR k.
Proof.
  intros Hm H. rewrite (products_same d _ _ (fun c => delta t c * (1 + INR k)) (fun _ => 1)) in H.
  2: { intros c Hc. rewrite Hm by assumption. cbn [W_1 rooted_model]. now rewrite at2_by by lia. }
  pose proof (token_below i i_in_range) as Ht. fold t in Ht.
  assert (Hsum : sum d (fun c => delta t c * (1 + INR k) * 1) = 1 + INR k).
  { rewrite (sum_ext _ _ (fun c => delta t c * (1 + INR k))) by (intros; ring). now rewrite sum_delta. }
  pose proof one_is_small as (Hsmall & Hsmall2 & _). pose proof count_at_most_L as Hk.
  change (at1 (b_1 rooted_model) 0) with (-1) in H.
  rewrite (products_plus_exact _ d _ _ _ r keeps_integers H), Hsum; [ring| | |].
  - intros c Hc. destruct (delta_is_whole t c) as [H1 H2]. split; [|rewrite Rmult_1_r; apply Rmult_le_pos; lra].
    rewrite Rmult_1_r. apply whole_times; [exact H1|]. change 1 with (INR 1) at 2. rewrite <- plus_INR. apply whole_nat.
  - exists (-1)%Z. lra.
  - rewrite Hsum, Rabs_left by lra. lra.
Qed.

Lemma logit_is_exact (c : nat) (neurons : nat -> R) (r : R) : (c < L)%nat -> neurons O = INR k ->
  dots_plus (products 1 neurons (fun n => at2 (W_2 rooted_model) n c)) (at1 (b_2 rooted_model) c) r ->
  r = INR k * (2 * INR (c + 1)) - INR (c + 1) * INR (c + 1).
Proof.
  intros Hc Hn H. cbn [W_2 b_2 rooted_model] in H. unfold W_2_of, b_2_of in H. rewrite at1_by in H by assumption.
  rewrite (products_same 1 _ _ (fun _ => INR k) (fun _ => 2 * INR (c + 1))) in H.
  2: { intros n Hn1. assert (n = O) as -> by lia. rewrite Hn, at2_by by lia. split; [reflexivity|field]. }
  pose proof one_is_small as (_ & _ & HL). pose proof count_at_most_L as Hk.
  assert (Hc1 : 0 <= INR (c + 1) <= INR L) by (split; [apply pos_INR|apply le_INR; lia]).
  rewrite (products_plus_exact _ 1 _ _ _ r keeps_integers H); [cbn [sum]; ring| | |].
  - intros n _. split; [|nra]. apply whole_times; [apply whole_nat|]. apply whole_times; [exists 2%Z; lra|apply whole_nat].
  - destruct (whole_times 1 _ _ (whole_nat (c + 1)) (whole_nat (c + 1))) as [z Hz]. exists (- z)%Z. rewrite Hz, opp_IZR. ring.
  - rewrite Rabs_Ropp, Rabs_pos_eq by nra. cbn [sum].
    assert (INR k * INR (c + 1) <= INR L * INR L) by (apply Rmult_le_compat; lra).
    assert (INR (c + 1) * INR (c + 1) <= INR L * INR L) by (apply Rmult_le_compat; lra). lra.
Qed.

Lemma logits_are_exact (logits : nat -> R) : evaluates rooted_model x i logits ->
  forall c, (c < L)%nat -> logits c = INR k * (2 * INR (c + 1)) - INR (c + 1) * INR (c + 1).
Proof.
  intros (query & key & scores & mixed & neurons & Hq & Hk & Hs & Hm & Hn & Hl) c Hc.
  cbn [Model.d Model.L p classes rooted_model] in *. fold t in Hq, Hm.
  assert (Hquery : forall c, (c < d)%nat -> query c = root * delta t c) by (intros; now apply query_is_exact, Hq).
  assert (Hkey : forall s c, (s < L)%nat -> (c < d)%nat -> key s c = delta (nth s x O) c) by (intros; now apply key_is_exact, Hk).
  assert (Hscores : forall s, (s < L)%nat -> scores s = delta t (nth s x O)).
  { intros s Hs'. destruct (Hs s Hs') as [v [Hv Hr]]. apply (score_is_exact s v); [assumption| |exact Hr].
    rewrite <- (products_same d query (key s)); [exact Hv|]. intros c' Hc'. now rewrite Hquery, Hkey. }
  assert (Hmixed : forall c, (c < d)%nat -> mixed c = delta t c * (1 + INR k)) by (intros; now apply (mixed_is_exact c0 scores), Hm).
  destruct (Hn O ltac:(lia)) as [y [Hy Hn0]]. apply neuron_is_exact in Hy; [|exact Hmixed].
  apply (logit_is_exact c neurons); [exact Hc| |now apply Hl]. rewrite Hn0, Hy. apply Rmax_right, pos_INR.
Qed.
End Position.

(* Whatever an evaluation does within these rules, the right count leads by 1. *)
Theorem any_order_counts : counts_in_any_order rooted_model 1.
Proof.
  intros x Hx i Hi logits Hlogits c Hc Hne. cbn [Model.L classes first_count rooted_model] in *.
  pose proof (count_at_most_L x i Hx Hi) as Hk. unfold count in *. set (k := count_occ Nat.eq_dec x (nth i x O)) in *.
  assert (Hk1 : (1 <= k <= L)%nat) by (split; apply INR_le; [simpl|]; lra).
  rewrite !(logits_are_exact x i Hx Hi logits Hlogits) by lia. fold k. replace (k - 1 + 1)%nat with k by lia.
  set (j := (c + 1)%nat) in *.
  pose proof (squared_distance k j ltac:(lia)) as Hsq.
  lra.
Qed.
End Family.
End Evaluation.

(* ---- Binary floats ---------------------------------------------------------------------------------------------------------------- *)

Section Floats.
Variables emin prec : Z. (* the least exponent, and the bits of a significand *)
Context { prec_gt_0_ : Prec_gt_0 prec }.

Local Notation is_float := (generic_format radix2 (FLT_exp emin prec)).

(* Each operation rounds to the format or to a wider one, in any direction, or flushes a subnormal result to zero. *)
Definition computes (v r : R) : Prop :=
  (exists emin' prec' rnd, (emin' <= emin)%Z /\ (prec <= prec')%Z /\ Valid_rnd rnd /\
     r = round radix2 (FLT_exp emin' prec') rnd v)
  \/ (Rabs v < bpow radix2 (emin + prec - 1) /\ r = 0).

(* The root that is stored and divided by: sqrt d rounded to nearest. *)
Definition rounded_root (d : nat) : R := round radix2 (FLT_exp emin prec) ZnearestE (sqrt (INR d)).
Definition is_rounded_root (d : nat) (r : R) : Prop := r = rounded_root d.

Hypothesis ones_are_normal : (emin + prec <= 1)%Z.

(* Normal numbers of the format, and 0, are kept. *)
Lemma floats_are_kept (v r : R) : is_float v -> v = 0 \/ bpow radix2 (emin + prec - 1) <= Rabs v -> computes v r -> r = v.
Proof.
  intros Hf Hn [(emin' & prec' & rnd & He & Hp & Hv & ->)|[Hs ->]].
  - apply round_generic; [exact Hv|]. apply (generic_inclusion_mag radix2 (FLT_exp emin prec)); [|exact Hf].
    intros _. unfold FLT_exp. lia.
  - destruct Hn as [->|Hn]; [reflexivity|lra].
Qed.

Lemma one_is_normal (v : R) : 1 <= Rabs v -> bpow radix2 (emin + prec - 1) <= Rabs v.
Proof. apply Rle_trans. change 1 with (bpow radix2 0). apply bpow_le. lia. Qed.

Lemma integers_are_kept (most : R) : most < bpow radix2 prec -> keeps computes 1 most.
Proof.
  intros Hm z r Hz. rewrite Rmult_1_l in *. apply floats_are_kept.
  - apply generic_format_FLT. apply (FLT_spec radix2 emin prec (IZR z) (Float radix2 z 0)).
    + unfold F2R. simpl. lra.
    + simpl. apply lt_IZR. rewrite abs_IZR. assert (Hp : (0 <= prec)%Z) by (unfold Prec_gt_0 in prec_gt_0_; lia).
      change (IZR (2 ^ prec)) with (IZR (Zpower radix2 prec)). rewrite IZR_Zpower by exact Hp. lra.
    + simpl. unfold Prec_gt_0 in prec_gt_0_. lia.
  - destruct (Z.eq_dec z 0) as [->|Hne]; [now left|right]. apply one_is_normal.
    rewrite <- abs_IZR. change 1 with (IZR 1). apply IZR_le. lia.
Qed.

Lemma root_is_kept (root : R) : 1 <= root -> is_float root -> keeps computes root root.
Proof.
  intros H1 Hf z r Hz. assert (Hroot : Rabs (root * IZR z) <= root) by exact Hz. rewrite Rabs_mult, Rabs_pos_eq, <- abs_IZR in Hz by lra.
  assert (Hsmall : (Z.abs z <= 1)%Z).
  { apply le_IZR. apply (Rmult_le_reg_l root); lra. }
  assert (z = 0 \/ z = 1 \/ z = -1)%Z as [->|[->| ->]] by lia.
  - rewrite Rmult_0_r. apply floats_are_kept; [apply generic_format_0|now left].
  - rewrite Rmult_1_r. apply floats_are_kept; [exact Hf|right; apply one_is_normal]. rewrite Rabs_pos_eq; lra.
  - replace (root * -1) with (- root) by ring. apply floats_are_kept; [now apply generic_format_opp|right; apply one_is_normal].
    rewrite Rabs_Ropp, Rabs_pos_eq; lra.
Qed.

Lemma power_is_float (e : Z) : (emin <= e)%Z -> is_float (bpow radix2 e).
Proof. intros He. apply generic_format_bpow. unfold FLT_exp. unfold Prec_gt_0 in prec_gt_0_. lia. Qed.

Lemma rounded_root_is_float (d : nat) : (1 <= d)%nat -> 1 <= rounded_root d /\ is_float (rounded_root d).
Proof.
  intros Hd. unfold rounded_root. split.
  - apply round_ge_generic; [now apply FLT_exp_valid|apply valid_rnd_N| |].
    + change 1 with (bpow radix2 0). apply power_is_float. unfold Prec_gt_0 in prec_gt_0_. lia.
    + rewrite <- sqrt_1. apply sqrt_le_1_alt. change 1 with (INR 1). now apply le_INR.
  - apply generic_format_round; [now apply FLT_exp_valid|apply valid_rnd_N].
Qed.

(* A-4.2 in floating point: in every format with 3 L^2 < 2^prec, for all T and d >= T, every evaluation that divides by the
   rounded root answers every sequence rightly at every position, by a margin of 1. *)
Theorem floats_count (T L d : nat) : (1 <= L)%nat -> (T <= d)%nat -> (1 <= d)%nat -> 3 * (INR L * INR L) < bpow radix2 prec ->
  counts_in_any_order computes is_rounded_root False (rooted_model (rounded_root d) T L d) 1.
Proof.
  intros HL HT Hd Hprec. destruct (rounded_root_is_float d Hd) as [H1 Hf].
  apply any_order_counts; try assumption; try easy; [lra|now apply integers_are_kept|now apply root_is_kept].
Qed.

(* With d a power of 4, the root and its reciprocal are exact, and multiplying by it does no harm either. *)
Theorem floats_count_by_reciprocals (T L j : nat) : (1 <= L)%nat -> (T <= 4 ^ j)%nat -> (emin + prec <= 1 - Z.of_nat j)%Z ->
  3 * (INR L * INR L) < bpow radix2 prec ->
  counts_in_any_order computes is_rounded_root True (rooted_model (rounded_root (4 ^ j)) T L (4 ^ j)) 1.
Proof.
  intros HL HT Hj Hprec. assert (Hd : (1 <= 4 ^ j)%nat) by (apply Nat.neq_0_lt_0, Nat.pow_nonzero; lia).
  destruct (rounded_root_is_float (4 ^ j) Hd) as [H1 Hf].
  assert (Hroot : rounded_root (4 ^ j) = bpow radix2 (Z.of_nat j)).
  { unfold rounded_root. assert (Hs : sqrt (INR (4 ^ j)) = bpow radix2 (Z.of_nat j)).
    { apply sqrt_lem_1; [apply pos_INR|apply bpow_ge_0|]. rewrite pow_INR, bpow_powerRZ, <- pow_powerRZ, <- Rpow_mult_distr.
      f_equal. simpl. lra. }
    rewrite Hs. apply round_generic; [apply valid_rnd_N|]. apply power_is_float. unfold Prec_gt_0 in prec_gt_0_. lia. }
  apply any_order_counts; try assumption; try easy; [lra|now apply integers_are_kept|now apply root_is_kept|].
  intros _ i r Hi Hr. rewrite Hroot in Hi, Hr.
  assert (i = bpow radix2 (- Z.of_nat j)) as ->.
  { rewrite <- bpow_opp in Hi. apply floats_are_kept; [| |exact Hi].
    - apply power_is_float. unfold Prec_gt_0 in prec_gt_0_. lia.
    - right. rewrite Rabs_pos_eq by apply bpow_ge_0. apply bpow_le. lia. }
  rewrite <- bpow_plus, Z.add_opp_diag_r in Hr. change (bpow radix2 0) with 1 in Hr.
  apply floats_are_kept; [| |exact Hr].
  - change 1 with (bpow radix2 0). apply power_is_float. unfold Prec_gt_0 in prec_gt_0_. lia.
  - right. apply one_is_normal. rewrite Rabs_R1. lra.
Qed.
End Floats.
