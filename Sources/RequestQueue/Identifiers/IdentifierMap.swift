/// The remote identifiers of the entities of each tenant.
///
/// Entries are stored with the change that brought them, so that a request that is appended later, or after a restart,
/// is resolved as well.
public struct IdentifierMap: Sendable {
    private struct Key: Hashable {
        let tenant: ExactText
        let reference: EntityReference

        init(tenant: String, reference: EntityReference) {
            (self.tenant, self.reference) = (ExactText(tenant), reference)
        }
    }

    /// Maximum length of a remote identifier, in bytes.
    static let longestRemote = 1024

    private var remotes: [Key: String] = [:]

    /// An empty map.
    public init() {}

    /// Number of entities with a remote identifier.
    public var count: Int { remotes.count }

    /// The remote identifier of an entity; nil if it is unknown.
    public subscript(tenant: String, reference: EntityReference) -> String? {
        remotes[Key(tenant: tenant, reference: reference)]
    }

    /// Checks identifiers that are to be merged together.
    ///
    /// - Throws: ``MergeConflict`` if one of them contradicts a known identifier, or another one of them.
    func check(_ identifiers: [EntityIdentifier], tenant: String) throws(MergeConflict) {
        var together = IdentifierMap()
        for identifier in identifiers {
            _ = try together.merge(identifier, tenant: tenant)
            guard let reference = identifier.reference, let remote = identifier.remote else { continue }
            if let known = self[tenant, reference], !ExactText.equal(known, remote) {
                throw .differentRemotes(reference.type, known, remote)
            }
        }
    }

    /// Adds an identifier that has a local and a remote part; others are ignored.
    ///
    /// - Returns: the mapping; nil if it is not new.
    /// - Throws: ``MergeConflict`` if the entity has another remote identifier, or this one cannot be used.
    public mutating func merge(_ identifier: EntityIdentifier, tenant: String) throws(MergeConflict)
        -> IdentifierMapping?
    {
        guard let reference = identifier.reference, let remote = identifier.remote else { return nil }
        guard !["", ".", ".."].contains(remote), remote.utf8.count <= Self.longestRemote,
            RequestFlaw.isFieldValue(remote)
        else {
            throw .unusableRemote(reference.type)
        }
        let key = Key(tenant: tenant, reference: reference)
        if let known = remotes[key] {
            guard ExactText.equal(known, remote) else { throw .differentRemotes(reference.type, known, remote) }
            return nil
        }
        remotes[key] = remote
        return IdentifierMapping(tenant: tenant, reference: reference, remote: remote)
    }

    mutating func forget(_ mapping: IdentifierMapping) {
        remotes[Key(tenant: mapping.tenant, reference: mapping.reference)] = nil
    }
}

/// One entry of the map, as it is stored.
public struct IdentifierMapping: Hashable, Sendable {
    /// The owner of the entity.
    public let tenant: String
    /// The entity.
    public let reference: EntityReference
    /// The remote identifier.
    public let remote: String

    /// A mapping, learnt or read from a store.
    public init(tenant: String, reference: EntityReference, remote: String) {
        (self.tenant, self.reference, self.remote) = (tenant, reference, remote)
    }
}
