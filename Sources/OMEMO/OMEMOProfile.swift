package import DoubleRatchet

/// The OMEMO protocol of a key, a message or a session: the same algorithms with different constants.
///
/// | | ``omemo2`` | ``axolotl`` |
/// |---|---|---|
/// | identity key on the wire | Ed25519, 32 bytes | `05`, X25519: 33 bytes |
/// | other keys on the wire | X25519, 32 bytes | `05`, X25519: 33 bytes |
/// | signature of the signed prekey | Ed25519 (RFC 8032) | XEdDSA |
/// | authenticated with a message | initiator's, responder's identity | sender's, recipient's identity |
/// | MAC of a message | 16 bytes | 8 bytes |
///
/// Neither has post-quantum protection or header encryption: peers that speak the native profile use ``Session``.
public enum OMEMOProfile: UInt8, Hashable, Sendable, CaseIterable {
    /// `eu.siacs.conversations.axolotl`: XEP-0384 up to version 0.3, in the wire format of the Signal protocol, version
    /// 3.
    case axolotl = 1
    /// `urn:xmpp:omemo:2`: XEP-0384 since version 0.8.
    case omemo2 = 2

    /// The XML namespace that names the profile.
    public var namespace: String {
        switch self {
        case .axolotl: "eu.siacs.conversations.axolotl"
        case .omemo2: "urn:xmpp:omemo:2"
        }
    }

    /// The info of X3DH's key derivation (XEP-0384, section 4.2; X3DH, section 2.2).
    var agreementInfo: [UInt8] {
        switch self {
        case .axolotl: Array("WhisperText".utf8)
        case .omemo2: Array("OMEMO X3DH".utf8)
        }
    }

    /// The info of `KDF_RK` (XEP-0384, section 4.3).
    var rootInfo: [UInt8] {
        switch self {
        case .axolotl: Array("WhisperRatchet".utf8)
        case .omemo2: Array("OMEMO Root Chain".utf8)
        }
    }

    /// The info that turns a message key into cipher key, MAC key and IV (XEP-0384, section 4.3).
    var messageInfo: [UInt8] {
        switch self {
        case .axolotl: Self.axolotlMessageInfo
        case .omemo2: Self.omemo2MessageInfo
        }
    }

    // Made once, because every message needs one.
    private static let axolotlMessageInfo = Array("WhisperMessageKeys".utf8)
    private static let omemo2MessageInfo = Array("OMEMO Message Key Material".utf8)

    /// The length of a message's truncated HMAC-SHA256.
    var macLength: Int {
        switch self {
        case .axolotl: 8
        case .omemo2: 16
        }
    }

    /// The length of an X25519 key on the wire.
    var agreementKeyLength: Int {
        switch self {
        case .axolotl: 1 + KeySize.curve25519
        case .omemo2: KeySize.curve25519
        }
    }

    /// The type byte that the Signal protocol puts before a Curve25519 key.
    private static let curveType: UInt8 = 0x05

    /// Appends an X25519 key in its wire form.
    package func append(agreementKey key: Bytes32, to output: inout [UInt8]) {
        if self == .axolotl { output.append(Self.curveType) }
        key.append(to: &output)
    }

    func wireForm(agreementKey key: Bytes32) -> [UInt8] {
        var bytes: [UInt8] = []
        append(agreementKey: key, to: &bytes)
        return bytes
    }

    /// Reads an X25519 key in its wire form. ``AgreementPublicKey`` checks the key itself.
    package func agreementKey(_ bytes: UnsafeRawBufferPointer) throws(RatchetError) -> Bytes32 {
        guard bytes.count == agreementKeyLength else { throw .malformed }
        if self == .axolotl { guard bytes[0] == Self.curveType else { throw .malformed } }
        return Bytes32(UnsafeRawBufferPointer(rebasing: bytes.suffix(KeySize.curve25519)))
    }
}

/// The limits of the OMEMO profiles, each with its reason.
public enum OMEMOLimits {
    /// Messages that one header may skip in one chain.
    ///
    /// XEP-0384, section 4.3 (`MAX_SKIP`), asks for around 1000. A forged header costs at most that many HMACs, half a
    /// millisecond, and one agreement.
    public static let maximumSkip: UInt32 = 1000

    /// Keys of skipped messages kept in one session. The oldest are dropped first, as the same section requires.
    public static let maximumSkippedKeys = 1000

    /// Receiving chains kept after a ratchet step of the peer.
    ///
    /// Implementations derived from libsignal send a length of their previous chain that is one too low. The key of its
    /// last message, if that is late, can then be derived only from the chain itself. They keep five chains, including
    /// the current one.
    public static let maximumPastChains = 4

    /// Earlier receiving chains whose ratchet keys are remembered.
    ///
    /// A late copy of an old message is then reported as ``RatchetError/duplicate`` and not as a forgery: archives are
    /// often read twice. Eight bytes each.
    public static let maximumRememberedChains = 64

    /// The longest message that is parsed, in bytes. Key material and both headers take less than 300; the rest is for
    /// clients that put a whole text into the ratchet.
    public static let maximumMessageLength = 65_536

    /// The message number from which a heartbeat is due (XEP-0384, Business Rules: 53).
    public static let heartbeatNumber: UInt32 = 53

    /// The minimum number of prekeys in a bundle (XEP-0384, section 4.2).
    public static let minimumPreKeys = 25
}
