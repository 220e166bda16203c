(* Regions of sequences: how many tokens lie in each of some sets of tokens; the least value of a sum over a region;
   and splitting a region in two ways of looking at one of its sets. *)

From Coq Require Import Reals List Arith ZArith Lia Lra Permutation.
From Weightproof Require Import Model Sums Forms.
Import ListNotations.
Open Scope R_scope.

(* A set of tokens as a list of flags, and a region: for each set, how many tokens of the sequence lie in it. *)
Definition token_set : Type := list bool.
Definition region : Type := list (nat * token_set).

Definition member (M : token_set) (s : nat) : Prop := nth s M false = true.

(* A sequence lies in a region if it falls, up to order, into parts that lie in the sets, of the right lengths. *)
Definition lies_in (x : list nat) (r : region) : Prop :=
  exists parts, Permutation x (concat parts) /\
    Forall2 (fun part '(n, M) => length part = n /\ Forall (member M) part) parts r.

(* ---- The least value of a sum over a region ------------------------------------------------------------------ *)

(* The least of the numbers that belong to a set, if it has any. *)
Fixpoint least_where (M : token_set) (g : list Z) : option Z :=
  match M, g with
  | b :: M', y :: g' =>
      match b, least_where M' g' with
      | true, Some z => Some (Z.min y z)
      | true, None => Some y
      | false, found => found
      end
  | _, _ => None
  end.

Definition least_term (g : list Z) (group : nat * token_set) : Z :=
  match least_where (snd group) g with
  | Some z => (Z.of_nat (fst group) * z)%Z
  | None => 0%Z
  end.

Definition region_least (g : list Z) (r : region) : Z := add_all (map (least_term g) r).

Lemma least_where_is_least (M : token_set) (g : list Z) (s : nat) :
  member M s -> (s < length g)%nat -> exists z, least_where M g = Some z /\ (z <= zat g s)%Z.
Proof.
  unfold member, zat. revert g s. induction M as [|b M IH]; intros g s Hm Hs.
  { destruct s; discriminate. }
  destruct g as [|y g]; [simpl in Hs; lia|].
  destruct s as [|s]; simpl in *.
  - subst b. destruct (least_where M g) as [z|]; eexists; split; try reflexivity; lia.
  - destruct (IH g s Hm) as [z [-> Hz]]; [lia|].
    destruct b; eexists; split; try reflexivity; lia.
Qed.

Lemma total_permutation {X : Type} (f : X -> R) (k l : list X) :
  Permutation k l -> total (map f k) = total (map f l).
Proof. induction 1; simpl; lra. Qed.

Lemma least_term_is_least (g : list Z) (part : list nat) (n : nat) (M : token_set) :
  length part = n -> Forall (member M) part -> Forall (fun s => s < length g)%nat part ->
  IZR (least_term g (n, M)) <= total (map (fun s => IZR (zat g s)) part).
Proof.
  intros <- HM Hg. unfold least_term. cbn [fst snd].
  destruct (least_where M g) as [z|] eqn:Hz.
  - induction part as [|s part IH]; [simpl; lra|].
    inversion HM as [|? ? Hs HM']; inversion Hg as [|? ? Hs' Hg']; subst. specialize (IH HM' Hg').
    destruct (least_where_is_least M g s Hs Hs') as [z' [Hz' Hle]].
    rewrite Hz in Hz'. injection Hz' as <-. apply IZR_le in Hle.
    cbn [length map total fold_right]. rewrite Nat2Z.inj_succ.
    unfold Z.succ. rewrite mult_IZR, plus_IZR. rewrite mult_IZR in IH. unfold total in IH. rewrite Rmult_plus_distr_r. lra.
  - destruct part as [|s part]; [simpl; lra|].
    inversion HM as [|? ? Hs _]; inversion Hg as [|? ? Hs' _]; subst.
    destruct (least_where_is_least M g s Hs Hs') as [z' [Hz' _]]. congruence.
Qed.

Lemma Permutation_Forall' {X : Type} (P : X -> Prop) (k l : list X) : Permutation k l -> Forall P k -> Forall P l.
Proof. intros Hp. rewrite !Forall_forall. intros H y Hy. apply H. now apply (Permutation_in _ (Permutation_sym Hp)). Qed.

Lemma region_least_is_least (g : list Z) (x : list nat) (r : region) :
  lies_in x r -> Forall (fun s => s < length g)%nat x ->
  IZR (region_least g r) <= total (map (fun s => IZR (zat g s)) x).
Proof.
  intros [parts [Hp Hparts]] Hx.
  rewrite (total_permutation _ _ _ Hp).
  apply (Permutation_Forall' _ _ _ Hp) in Hx. clear Hp.
  induction Hparts as [|part [n M] parts r [Hn HM] Hrest IH]; [unfold region_least; simpl; lra|].
  cbn [concat] in *. apply Forall_app in Hx as [Hx1 Hx2].
  rewrite map_app, total_app. unfold region_least, add_all. cbn [map fold_right].
  rewrite plus_IZR. apply Rplus_le_compat; [now apply least_term_is_least | now apply IH].
Qed.

(* ---- The first region of a cell: k tokens are t, the others are not ------------------------------------------- *)

Definition only (T t : nat) : token_set := map (fun s => (s =? t)%nat) (seq 0 T).
Definition all_but (T t : nat) : token_set := map (fun s => negb (s =? t)%nat) (seq 0 T).

Definition cell (T L t k : nat) : region := [(k, only T t); ((L - k)%nat, all_but T t)].

Lemma nth_flags (f : nat -> bool) (T s : nat) : (s < T)%nat -> nth s (map f (seq 0 T)) false = f s.
Proof.
  intros H. rewrite (nth_indep _ _ (f O)) by now rewrite map_length, seq_length.
  rewrite map_nth, seq_nth by assumption. reflexivity.
Qed.

Lemma filter_partition {X : Type} (f : X -> bool) (x : list X) :
  Permutation x (filter f x ++ filter (fun y => negb (f y)) x).
Proof.
  induction x as [|y x IH]; simpl; [constructor|].
  destruct (f y); simpl; [now constructor|]. now apply Permutation_cons_app.
Qed.

Lemma length_filter_partition {X : Type} (f : X -> bool) (x : list X) :
  (length (filter f x) + length (filter (fun y => negb (f y)) x) = length x)%nat.
Proof. rewrite <- app_length. symmetry. apply Permutation_length, filter_partition. Qed.

Lemma length_filter_count (x : list nat) (t : nat) :
  length (filter (fun s => (s =? t)%nat) x) = count_occ Nat.eq_dec x t.
Proof.
  induction x as [|s x IH]; [reflexivity|]. simpl.
  destruct (Nat.eqb_spec s t), (Nat.eq_dec s t); simpl; congruence.
Qed.

Lemma lies_in_cell (T L t : nat) (x : list nat) :
  length x = L -> Forall (fun s => s < T)%nat x -> lies_in x (cell T L t (count_occ Nat.eq_dec x t)).
Proof.
  intros HL HT. exists [filter (fun s => (s =? t)%nat) x; filter (fun s => negb (s =? t)%nat) x].
  pose proof (length_filter_partition (fun s => (s =? t)%nat) x) as Hlen.
  rewrite Forall_forall in HT.
  split; [|repeat constructor].
  - simpl. rewrite app_nil_r. apply filter_partition.
  - apply length_filter_count.
  - apply Forall_forall. intros s Hs. apply filter_In in Hs as [Hin Heq].
    unfold member, only. now rewrite nth_flags by now apply HT.
  - rewrite <- length_filter_count, <- HL. lia.
  - apply Forall_forall. intros s Hs. apply filter_In in Hs as [Hin Heq].
    unfold member, all_but. now rewrite nth_flags by now apply HT.
Qed.

(* ---- Splitting -------------------------------------------------------------------------------------------------- *)

Fixpoint both (M N : token_set) : token_set :=
  match M, N with a :: M', b :: N' => andb a b :: both M' N' | _, _ => [] end.
Fixpoint without (M N : token_set) : token_set :=
  match M, N with
  | a :: M', b :: N' => andb a (negb b) :: without M' N'
  | _, [] => M
  | [], _ => []
  end.

Lemma member_both (M N : token_set) (s : nat) : member M s -> member N s -> member (both M N) s.
Proof.
  unfold member. revert N s. induction M as [|a M IH]; intros [|b N] [|s]; simpl; try easy.
  - now intros -> ->.
  - apply IH.
Qed.

Lemma member_without (M N : token_set) (s : nat) : member M s -> nth s N false = false -> member (without M N) s.
Proof.
  unfold member. revert N s. induction M as [|a M IH]; intros [|b N] [|s]; simpl; try easy.
  - now intros -> ->.
  - apply IH.
Qed.

(* Group number j of the region, divided by the set N in all ways: m of its tokens lie in N, n - m do not. *)
Fixpoint split_group (j : nat) (N : token_set) (before r : region) : list region :=
  match j, r with
  | _, [] => []
  | O, (n, M) :: rest =>
      map (fun m => rev_append before ((m, both M N) :: ((n - m)%nat, without M N) :: rest)) (seq 0 (S n))
  | S j', group :: rest => split_group j' N (group :: before) rest
  end.

Lemma Forall2_flip {X Y : Type} (P : X -> Y -> Prop) (k : list X) (l : list Y) :
  Forall2 P k l -> Forall2 (fun y x => P x y) l k.
Proof. induction 1; now constructor. Qed.

Lemma lies_in_permuted (x : list nat) (r r' : region) : Permutation r r' -> lies_in x r -> lies_in x r'.
Proof.
  intros Hp [parts [Hx Hparts]].
  destruct (Permutation_Forall2 Hp (Forall2_flip _ _ _ Hparts)) as [parts' [Hpp Hparts']].
  exists parts'. split.
  - rewrite Hx. clear -Hpp. induction Hpp; simpl; try easy.
    + now apply Permutation_app_head.
    + rewrite !app_assoc. apply Permutation_app_tail, Permutation_app_comm.
    + now transitivity (concat l').
  - exact (Forall2_flip _ _ _ Hparts').
Qed.

Lemma split_first_group (x : list nat) (n : nat) (M N : token_set) (rest : region) :
  lies_in x ((n, M) :: rest) ->
  exists m, (m <= n)%nat /\ lies_in x ((m, both M N) :: ((n - m)%nat, without M N) :: rest).
Proof.
  intros [[|part parts'] [Hx Hparts]]; [inversion Hparts|].
  inversion_clear Hparts as [|? ? ? ? Hpart Hrest]. destruct Hpart as [Hn HM].
  set (f := fun s => nth s N false).
  pose proof (length_filter_partition f part) as Hlen.
  exists (length (filter f part)). split; [lia|].
  exists (filter f part :: filter (fun s => negb (f s)) part :: parts'). split.
  - rewrite Hx. simpl. rewrite app_assoc. apply Permutation_app_tail, filter_partition.
  - rewrite Forall_forall in HM.
    constructor; [split; [reflexivity|]|constructor; [split; [lia|]|exact Hrest]];
      apply Forall_forall; intros s Hs; apply filter_In in Hs as [Hin Hf].
    + now apply member_both; [apply HM|].
    + apply member_without; [now apply HM|]. now apply Bool.negb_true_iff.
Qed.

Lemma split_group_covers (x : list nat) (j : nat) (N : token_set) (before r : region) :
  (j < length r)%nat -> lies_in x (rev_append before r) -> Exists (lies_in x) (split_group j N before r).
Proof.
  revert j before. induction r as [|[n M] rest IH]; intros j before Hj Hx; [simpl in Hj; lia|].
  destruct j as [|j]; cbn [split_group].
  - assert (Hx' : lies_in x ((n, M) :: rev_append before rest)).
    { apply (lies_in_permuted x (rev_append before ((n, M) :: rest))); [|exact Hx].
      rewrite !rev_append_rev. symmetry. apply Permutation_middle. }
    destruct (split_first_group _ _ _ N _ Hx') as [m [Hm Hsplit]].
    apply Exists_exists. eexists. split.
    + apply in_map_iff. exists m. split; [reflexivity|]. apply in_seq. lia.
    + eapply lies_in_permuted; [|exact Hsplit].
      rewrite !rev_append_rev.
      rewrite <- Permutation_middle. constructor. now rewrite <- Permutation_middle.
  - apply IH; [simpl in Hj; lia|]. exact Hx.
Qed.

(* A property of all sequences of a region, tested on it or on the regions that it is split into. `choose` names a
   group and a set to split it by; nothing depends on its being a good choice. *)
Fixpoint by_splitting (fuel : nat) (choose : region -> option (nat * token_set)) (test : region -> bool)
    (r : region) : bool :=
  if test r then true
  else match fuel, choose r with
       | S fuel', Some (j, N) =>
           if (j <? length r)%nat then all_of (by_splitting fuel' choose test) (split_group j N [] r) else false
       | _, _ => false
       end.

Lemma by_splitting_is_sound (P : list nat -> Prop) (test : region -> bool) :
  (forall r x, test r = true -> lies_in x r -> P x) ->
  forall fuel choose r x, by_splitting fuel choose test r = true -> lies_in x r -> P x.
Proof.
  intros Htest fuel choose. induction fuel as [|fuel IH]; intros r x; cbn [by_splitting];
    destruct (test r) eqn:Ht; try (intros _; now apply Htest); try easy.
  destruct (choose r) as [[j N]|]; [|easy].
  destruct (Nat.ltb_spec j (length r)) as [Hj|]; [|easy].
  rewrite all_of_forallb, forallb_forall. intros Hall Hx.
  destruct (proj1 (Exists_exists _ _) (split_group_covers x j N [] r Hj Hx)) as [r' [Hin Hr']].
  exact (IH r' x (Hall r' Hin) Hr').
Qed.
