// What messengers publish for their accounts: bytes that the gateway keeps as they are. Readers check them.
//
//     publishedConfig   ACCOUNT           -> the bytes

package import Protection
package import StorePort

/// The published configurations of accounts; the store holds the bytes, and memory holds none.
package enum PublishedConfigs {
    /// Ours: bytes of one configuration.
    package static let sizeLimit = 32 << 10

    static func row(_ config: [UInt8], of account: AccountID) -> StoreChange {
        .putRecord(RecordRow(kind: .publishedConfig, name: account.text, value: config))
    }

    /// The row's removal, with the devices of the account.
    package static func removal(of account: AccountID) -> StoreChange {
        .removeRecord(.publishedConfig, name: account.text)
    }

    static func read(_ account: AccountID, _ store: any Store) throws(StoreError) -> [UInt8]? {
        try store.record(.publishedConfig, name: account.text)?.value
    }
}
