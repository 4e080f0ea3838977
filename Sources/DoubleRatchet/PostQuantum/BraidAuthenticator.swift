/// The ratcheted authenticator of the ML-KEM Braid (section 2.3).
///
/// An attacker with one epoch's secret cannot insert its own keys into the next epoch.
///
/// ```
/// root || MAC key = HKDF-SHA256(salt root, secret, "DoubleRatchet/2 SPQR authenticator" || epoch u32, 64)
/// MAC             = HMAC-SHA256(MAC key, label || epoch u32 || data)
/// ```
/// The root is initially zero; the first secret is PQXDH's, for epoch 1.
struct BraidAuthenticator: Sendable {
    static let macSize = 32

    private static let updateInfo = Array("DoubleRatchet/2 SPQR authenticator".utf8)
    private static let headerLabel = Array("DoubleRatchet/2 SPQR header".utf8)
    private static let ciphertextLabel = Array("DoubleRatchet/2 SPQR ciphertext".utf8)

    private var root: SecretBytes
    private var macKey: SecretBytes

    init(secret: SecretBytes) {
        root = SecretBytes(count: 32) { _ in }
        macKey = root
        update(epoch: 1, secret: secret)
    }

    mutating func update(epoch: UInt32, secret: SecretBytes) {
        var info = Self.updateInfo
        info.append(networkOrder: epoch)
        let outputs = Primitives.hkdf(salt: root, secret: secret, info: info, blocks: 2)
        (root, macKey) = (outputs[0], outputs[1])
    }

    /// The MAC of a header of 64 bytes.
    package func mac(epoch: UInt32, header: [UInt8]) -> [UInt8] {
        mac(Self.headerLabel, epoch, header)
    }

    /// The MAC of a whole ciphertext of 1088 bytes, after the update with its secret.
    package func mac(epoch: UInt32, ciphertext: [UInt8]) -> [UInt8] {
        mac(Self.ciphertextLabel, epoch, ciphertext)
    }

    private func mac(_ label: [UInt8], _ epoch: UInt32, _ data: [UInt8]) -> [UInt8] {
        var prefix = label
        prefix.append(networkOrder: epoch)
        let code = prefix.withUnsafeBytes { prefix in
            data.withUnsafeBytes { Primitives.hmac(key: macKey, prefix, $0) }
        }
        return code.withUnsafeBytes { Array($0) }
    }

    /// Whether both are equal, in time that depends on the length only.
    static func isEqual(_ left: ArraySlice<UInt8>, _ right: [UInt8]) -> Bool {
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }

    init(from reader: inout ByteReader) throws(RatchetError) {
        root = try reader.secret(32)
        macKey = try reader.secret(32)
    }

    package func serialize(into output: inout [UInt8]) {
        root.append(to: &output)
        macKey.append(to: &output)
    }
}
